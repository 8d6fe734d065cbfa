/*
 * A stream against a server that loses, repeats and delays messages: whatever happens on the way, the page ends with
 * what the server has.
 */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { applyMessage, emptySnapshot, type Snapshot } from "../src/live/apply";
import type { LiveMessage } from "../src/live/rows";
import { Connection, LiveStream } from "../src/live/streams";
import { type PackedGrid, TopologyFeed } from "../src/live/topology";
import { transcript } from "./golden";

const noConnection = { subscribe: () => undefined } as unknown as Connection;
const settle = () => new Promise((resolve) => setTimeout(resolve, 0));

/** A server whose snapshot is what all messages so far amount to. */
class Server {
  state: Snapshot;
  log: LiveMessage[] = [];
  fetches = 0;

  constructor(first: Snapshot) {
    this.state = first;
  }

  say(message: LiveMessage): void {
    const said = { ...message, epoch: this.state.stream.epoch, offset: this.state.stream.offset + 1 } as LiveMessage;
    this.state = applyMessage(this.state, said).snapshot;
    this.log.push(said);
  }

  fetch = async (): Promise<Snapshot> => {
    this.fetches += 1;
    const state = this.state;
    await settle();
    return state;
  };
}

function serverAndStream() {
  const { snapshot, messages } = transcript("team-stream");
  const server = new Server(snapshot);
  return { server, messages, stream: new LiveStream(noConnection, { fetchSnapshot: server.fetch }) };
}

describe("a live stream", () => {
  it("keeps messages that arrive while the snapshot is on its way", async () => {
    const { server, messages, stream } = serverAndStream();
    const loading = stream.load();
    for (const message of messages) server.say(message);
    for (const message of server.log) stream.take(message);
    await loading;
    expect(stream.snapshot.value).toEqual(server.state);
    expect(server.fetches).toBe(1);
  });

  describe("while the socket is live", () => {
    beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"] }));
    afterEach(() => void vi.useRealTimers());

    async function polled(options: { isTalkative?: boolean; isPartial?: () => boolean }) {
      const { server, messages } = serverAndStream();
      const stream = new LiveStream(noConnection, { fetchSnapshot: server.fetch, ...options });
      await stream.load();
      return {
        server,
        stream,
        hear: () => stream.take(messages[0]),
        wait: (ms: number) => vi.setSystemTime(Date.now() + ms),
      };
    }

    it("is not asked for as long as it is told, and is once it has fallen quiet", async () => {
      const { server, stream, hear, wait } = await polled({ isTalkative: true });
      for (let n = 0; n < 20; n++) {
        wait(4000);
        hear();
        stream.poll(true);
      }
      await settle();
      expect(server.fetches).toBe(1);
      wait(5000);
      stream.poll(true);
      stream.poll(true);
      expect(server.fetches, "a fetch under way is not repeated").toBe(2);
    });

    it("may be quiet when nothing need happen, and is asked as soon as the socket is not live", async () => {
      const { server, stream, wait } = await polled({});
      wait(60_000);
      stream.poll(true);
      expect(server.fetches).toBe(1);
      stream.poll(false);
      expect(server.fetches).toBe(2);
      await settle();
      wait(4000);
      stream.poll(false);
      expect(server.fetches, "every five seconds").toBe(2);
    });

    it("is asked for whatever is told when its messages tell only a part", async () => {
      const { server, stream, hear, wait } = await polled({ isPartial: () => true });
      wait(5000);
      hear();
      stream.poll(true);
      expect(server.fetches).toBe(2);
    });

    it("is asked again after an answer that failed, though messages come", async () => {
      const { server, stream, hear, wait } = await polled({ isTalkative: true });
      stream.failure.value = new Error("away");
      wait(5000);
      hear();
      stream.poll(true);
      await settle();
      expect(server.fetches).toBe(2);
      expect(stream.failure.value).toBeNull();
    });
  });

  it("tells when it last had an answer, and that it waits for one", async () => {
    const { stream } = serverAndStream();
    const loading = stream.load();
    expect(stream.askingSince.value).not.toBeNull();
    await loading;
    expect(stream.askingSince.value).toBeNull();
    expect(stream.fetchedAt.value).not.toBeNull();
  });

  it("fetches again after a gap", async () => {
    const { server, messages, stream } = serverAndStream();
    await stream.load();
    for (const message of messages) server.say(message);
    stream.take(server.log[2]);
    await settle();
    await settle();
    expect(stream.snapshot.value).toEqual(server.state);
    expect(server.fetches).toBe(2);
  });

  it("keeps what it has when the server cannot be asked, and says so", async () => {
    const { server, stream } = serverAndStream();
    await stream.load();
    const before = stream.snapshot.value;
    server.fetch = () => Promise.reject(new Error("away"));
    const failing = new LiveStream(noConnection, { fetchSnapshot: () => server.fetch() });
    failing.snapshot.value = before;
    await failing.load();
    expect(failing.snapshot.value).toBe(before);
    expect(failing.failure.value?.message).toBe("away");
  });

  it.each([1, 2, 3, 4, 5, 6, 7, 8])(
    "ends with the server's state whatever is lost or repeated (seed %i)",
    async (seed) => {
      const random = pseudoRandom(seed);
      const { server, messages, stream } = serverAndStream();
      await stream.load();
      for (let n = 0; n < 60; n++) {
        server.say(messages[Math.floor(random() * messages.length)]);
        const fate = random();
        if (fate < 0.6) stream.take(server.log[server.log.length - 1]);
        else if (fate < 0.8) stream.take(server.log[Math.floor(random() * server.log.length)]);
        if (random() < 0.2) await settle();
      }
      // What a subscription does at last: the newest message, once everything before it has settled.
      for (let n = 0; n < 6; n++) await settle();
      server.say(messages[1]);
      stream.take(server.log[server.log.length - 1]);
      for (let n = 0; n < 6; n++) await settle();
      expect(stream.snapshot.value).toEqual(server.state);
    },
  );

  it("starts from nothing without failing", () => {
    const stream = new LiveStream(noConnection, { fetchSnapshot: async () => emptySnapshot(server().stream) });
    stream.take(transcript("team-stream").messages[0]);
    expect(stream.snapshot.value).toBeNull();
  });
});

const server = () => transcript("team-stream").snapshot;

function pseudoRandom(seed: number): () => number {
  let state = seed * 2_654_435_761;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 374_761_393) >>> 0;
    return state / 2 ** 32;
  };
}

/** A socket that is open and says what the test lets the server say. */
class OpenSocket {
  static readonly OPEN = 1;
  static newest: OpenSocket;
  readyState = 1;
  said: Record<string, unknown>[] = [];
  onmessage: (message: { data: string }) => void = () => undefined;
  constructor() {
    OpenSocket.newest = this;
  }
  send(text: string): void {
    this.said.push(JSON.parse(text));
  }
  close(): void {}
  hear(frame: object): void {
    this.onmessage({ data: JSON.stringify(frame) });
  }
  get subscribed(): unknown[] {
    return this.said.map((frame) => frame.subscribe).filter(Boolean);
  }
}

describe("what a page follows", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["Date", "setInterval", "clearInterval"] });
    vi.stubGlobal("WebSocket", OpenSocket);
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  const place = { name: "topology:5", epoch: "7", offset: 1 };
  const packedGrid = { note: { texts: [], at: [] }, stream: place } as unknown as PackedGrid;

  function following() {
    const connection = new Connection("ws://here");
    connection.start();
    const fetches = { stream: 0, grid: 0 };
    const stream = new LiveStream(connection, {
      fetchSnapshot: async () => {
        fetches.stream += 1;
        await settle();
        return emptySnapshot({ name: "incident:5", epoch: "a", offset: 1 });
      },
    });
    const grid = new TopologyFeed({
      number: 5,
      fetchGrid: async () => {
        fetches.grid += 1;
        await settle();
        return packedGrid;
      },
      subscribe: (feed) => connection.subscribeGrid(feed),
      onColumns: () => undefined,
    });
    const leave = [connection.add(stream), connection.addGrid(grid)];
    const loaded = Promise.all([grid.load(), settle().then(settle)]);
    return { fetches, stream, grid, loaded, leave: () => leave.map((one) => one()) };
  }

  it("begins with the answers", async () => {
    await following().loaded;
    expect(OpenSocket.newest.subscribed.sort()).toEqual(["incident:5", "topology:5"]);
  });

  it("is asked for from where it is when a beat says that more was sent, then as a whole, and no oftener", async () => {
    const { fetches, loaded } = following();
    await loaded;
    const socket = OpenSocket.newest;
    const asked = () => socket.said.filter((frame) => frame.subscribe === "incident:5");
    const beat = async (offset: number) => {
      socket.hear({ beat: 1, at: "2026-01-01T00:00:00Z", offsets: { "incident:5": offset, "team:9": 40 } });
      await settle().then(settle);
    };
    await beat(1);
    expect(asked()).toHaveLength(1);
    await beat(2);
    expect(asked().at(-1)).toEqual({ subscribe: "incident:5", epoch: "a", offset: 1 });
    expect([asked().length, fetches.stream]).toEqual([2, 1]);
    await beat(2);
    expect([asked().length, fetches.stream]).toEqual([2, 1]);
    vi.advanceTimersByTime(5000);
    await beat(2);
    await beat(2);
    expect([asked().length, fetches.stream], "what was asked for was of no use").toEqual([2, 2]);
  });

  it("is nothing when it was left before they came", async () => {
    const { loaded, leave } = following();
    leave();
    await loaded;
    expect(OpenSocket.newest.subscribed).toEqual([]);
  });

  it("is asked for while the server refuses to tell of it, without a storm of questions, until it tells", async () => {
    const { fetches, grid, loaded } = following();
    await loaded;
    const socket = OpenSocket.newest;
    const refuse = async () => {
      for (const refused of ["incident:5", "topology:5"]) socket.hear({ refused, reason: "At most 32." });
      await settle().then(settle);
    };
    await refuse();
    await refuse();
    expect(fetches, "the first refusal asks").toEqual({ stream: 2, grid: 2 });
    expect(grid.isRefused).toBe(true);
    for (let second = 0; second < 6; second++) {
      vi.advanceTimersByTime(1000);
      socket.hear({ beat: second, at: "2026-01-01T00:00:00Z" });
    }
    await settle().then(settle);
    expect(fetches.stream).toBe(3);
    expect(socket.subscribed.filter((name) => name === "incident:5").length, "and asks to follow it").toBe(3);
    for (const subscribed of ["incident:5", "topology:5"])
      socket.hear({ subscribed, epoch: "a", offset: 1, recovered: true });
    expect(grid.isRefused).toBe(false);
    for (let second = 0; second < 6; second++) {
      vi.advanceTimersByTime(1000);
      socket.hear({ beat: second, at: "2026-01-01T00:00:00Z" });
    }
    expect(fetches.stream).toBe(3);
  });
});
