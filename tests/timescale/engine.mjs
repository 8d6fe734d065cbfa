// PostgreSQL with TimescaleDB in WebAssembly, as a server on a unix socket: node engine.mjs DATA_FOLDER SOCKET
//
// The engine has one session. Clients share it a transaction at a time: whoever has begun one keeps the engine until
// it ends, the others wait in line (ten seconds, then they are told, as a lock timeout would). What a client sends is
// run in whole units, up to a Query, Sync or Flush, so that unnamed statements of two clients never mix; names of
// prepared statements get the client's number in front. Settings made with SET are everybody's.
import { createServer } from "node:net";
import { PGlite } from "@electric-sql/pglite";
import { timescaledb } from "@electric-sql/pglite/timescaledb";

const WAIT_MS = 10_000;
const [STARTUP, SSL_REQUEST, GSS_REQUEST] = [196608, 80877103, 80877104];
const ENDS_A_UNIT = new Set(["Q", "S", "H"]);
const [dataFolder, socketPath] = process.argv.slice(2);
const db = await PGlite.create({ dataDir: dataFolder, extensions: { timescaledb } });
await db.exec("SET timezone = 'UTC'");
await db.exec("LOAD 'timescaledb'"); // as a server that preloads it does for every session

let owner = null;
let line = [];
let isRunning = false;
let nClients = 0;

function message(type, ...parts) {
  const body = Buffer.concat(parts.map((part) => (typeof part === "number" ? int32(part) : Buffer.from(part))));
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body]);
}

function int32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

// psycopg forgets its statements after DDL; those of the other clients must stay, and its own names never come again.
const [FORGET_ALL, NOTHING] = [Buffer.from("DEALLOCATE ALL\0"), Buffer.from("RESET application_name\0")];
const ERROR_TEXT = "another client keeps the only session of the engine in a transaction";
const GREETING = Buffer.concat([
  message("R", 0),
  ...Object.entries({
    server_version: "17.5",
    server_encoding: "UTF8",
    client_encoding: "UTF8",
    DateStyle: "ISO, MDY",
    IntervalStyle: "postgres",
    TimeZone: "UTC",
    integer_datetimes: "on",
    standard_conforming_strings: "on",
  }).map(([name, value]) => message("S", `${name}\0${value}\0`)),
  message("K", process.pid, 0),
  message("Z", "I"),
]);
const TOO_LONG = Buffer.concat([message("E", `SERROR\0VERROR\0C55P03\0M${ERROR_TEXT}\0\0`), message("Z", "I")]);

class Client {
  constructor(socket) {
    this.socket = socket;
    this.prefix = `c${nClients++}_`;
    this.unread = Buffer.alloc(0);
    this.unit = [];
    this.isGreeted = false;
    this.statements = new Set();
    socket.on("data", (bytes) => this.take(bytes));
    socket.on("error", () => {});
    socket.on("close", () => this.leave());
  }

  take(bytes) {
    this.unread = Buffer.concat([this.unread, bytes]);
    while (true) {
      const start = this.isGreeted ? 1 : 0;
      if (this.unread.length < start + 4) return;
      const end = start + this.unread.readInt32BE(start);
      if (this.unread.length < end) return;
      const one = this.unread.subarray(0, end);
      this.unread = this.unread.subarray(end);
      if (this.isGreeted) this.read(one);
      else this.greet(one.readInt32BE(4));
    }
  }

  greet(code) {
    if (code === STARTUP) {
      this.isGreeted = true;
      this.socket.write(GREETING);
    } else if (code === SSL_REQUEST || code === GSS_REQUEST) this.socket.write("N");
    else this.socket.destroy();
  }

  read(one) {
    const type = String.fromCharCode(one[0]);
    if (type === "X") return this.socket.end();
    this.unit.push(this.renamed(type, one));
    if (!ENDS_A_UNIT.has(type)) return;
    const isNothing = type === "H" && this.unit.length === 1; // psycopg may flush once more after the end
    const waiting = { client: this, bytes: Buffer.concat(this.unit), isOpen: type === "H", isNothing };
    waiting.timer = setTimeout(() => this.giveUp(waiting), WAIT_MS);
    this.unit = [];
    line.push(waiting);
    run();
  }

  giveUp(waiting) {
    if (!line.includes(waiting)) return;
    line = line.filter((other) => other !== waiting);
    this.socket.write(TOO_LONG);
  }

  // P: statement, query. B: portal, statement. D and C: kind, name.
  renamed(type, one) {
    const forgets = "QP".includes(type) ? one.indexOf(FORGET_ALL) : -1;
    if (forgets > 0) return message(type, one.subarray(5, forgets), NOTHING, one.subarray(forgets + FORGET_ALL.length));
    if (!"PBDC".includes(type)) return one;
    if ((type === "D" || type === "C") && one[5] !== "S".charCodeAt(0)) return one;
    const at = type === "P" ? 5 : type === "B" ? one.indexOf(0, 5) + 1 : 6;
    const end = one.indexOf(0, at);
    if (end === at) return one;
    const name = this.prefix + one.toString("utf8", at, end);
    if (type === "P") this.statements.add(name);
    return message(type, one.subarray(5, at), name, one.subarray(end));
  }

  leave() {
    line = line.filter((waiting) => waiting.client !== this);
    const close = [...this.statements].map((name) => message("C", `S${name}\0`));
    const rollback = owner === this ? [message("S"), message("Q", "ROLLBACK\0")] : [];
    const bytes = Buffer.concat([...rollback, ...close, message("S")]);
    line.unshift({ client: this, bytes, isOpen: false });
    run();
  }
}

async function run() {
  if (isRunning) return;
  isRunning = true;
  while (true) {
    const at = line.findIndex((waiting) => owner === null || waiting.client === owner);
    if (at < 0) break;
    const [{ client, bytes, isOpen, isNothing, timer }] = line.splice(at, 1);
    clearTimeout(timer);
    const answer = await db.execProtocolRaw(new Uint8Array(bytes));
    if (!isNothing) owner = isOpen || statusAtEnd(answer) !== "I" ? client : null;
    if (client.socket.writable) client.socket.write(answer);
  }
  isRunning = false;
}

// The last message of an answered unit is ReadyForQuery, whose last byte is the state of the transaction.
function statusAtEnd(answer) {
  return String.fromCharCode(answer[answer.length - 1]);
}

createServer((socket) => new Client(socket)).listen(socketPath, () => console.log("ready"));
process.on("SIGTERM", async () => {
  await db.close();
  process.exit(0);
});
