/* The frame around every page, and which page an address means. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { NowPage } from "./pages/NowPage";
import { Loading } from "./parts/bits";
import { Failure, NotFound } from "./parts/Failure";
import { Help, helpOpen } from "./parts/Help";
import { StaleBanner } from "./parts/LiveMark";
import { later } from "./parts/later";
import { Notices } from "./parts/Notices";
import { TopBar } from "./parts/TopBar";
import { go, isPage, path } from "./state/address";
import { pageTitle } from "./state/badge";
import { paletteOpen, useKeys } from "./state/keys";
import { away, session, sessionFailure, startTeam } from "./state/team";

const IncidentsPage = later(async () => (await import("./pages/IncidentsPage")).IncidentsPage, "incidents");
const IncidentPage = later(async () => (await import("./pages/IncidentPage")).IncidentPage, "the incident");
const JobPage = later(async () => (await import("./pages/JobPage")).JobPage, "the job");
const NodesPage = later(async () => (await import("./pages/NodesPage")).NodesPage, "nodes");
const SettingsPage = later(async () => (await import("./pages/SettingsPage")).SettingsPage, "settings");
const SilencesPage = later(async () => (await import("./pages/SilencesPage")).SilencesPage, "silences");
const DestinationsPage = later(
  async () => (await import("./tickets/DestinationsPage")).DestinationsPage,
  "destinations",
);
const ScorecardPage = later(async () => (await import("./pages/ScorecardPage")).ScorecardPage, "the scorecard");
const RankPage = later(async () => (await import("./fleet/RankPage")).RankPage, "the rank");
const NodePage = later(async () => (await import("./fleet/NodePage")).NodePage, "the node");
const QuestionsPage = later(async () => (await import("./questions/QuestionsPage")).QuestionsPage, "questions");
const Palette = later(async () => (await import("./palette/Palette")).Palette, "commands");
const BundlePage = later(async () => (await import("./pages/BundlePage")).BundlePage, "the page");
const AuditPage = later(async () => (await import("./access/AuditPage")).AuditPage, "the audit");
const JobSettingsPage = later(async () => (await import("./pages/JobSettingsPage")).JobSettingsPage, "the settings");

export function App() {
  useKeys({
    "?": () => {
      helpOpen.value = true;
    },
    g: () => go("/"),
    i: () => go("/incidents"),
    b: () => go("/bundle"),
    "/": () => go("/incidents?find=1"),
  });
  const hasArrived = useRef(false);
  useEffect(() => {
    // What was pressed went with its page: the keyboard goes on in the new one, and who listens is told of it.
    const isLost = document.activeElement === document.body;
    if (hasArrived.current && isLost) document.getElementById("main")?.focus({ preventScroll: true });
    hasArrived.current = true;
  }, [path.value]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <TopBar />
      <StaleBanner />
      <main id="main" tabIndex={-1} class={away.value ? "from-then" : ""}>
        {content()}
      </main>
      <Notices />
      <Help />
      {paletteOpen.value && session.value && <Palette />}
    </>
  );
}

function content(): ComponentChildren {
  if (sessionFailure.value) return <Failure error={sessionFailure.value} again={() => void startTeam()} />;
  if (!session.value) return <Loading what="the console" />;
  return page(path.value);
}

function page(at: string): ComponentChildren {
  const [, room, id, part, which] = at.split("/");
  if (!isPage(at)) return <NoPage />;
  if (room === "") return <NowPage />;
  if (room === "incidents" && id) return <IncidentPage key={id} number={Number(id)} />;
  if (room === "incidents") return <IncidentsPage />;
  if (room === "jobs" && part === "settings") return <JobSettingsPage key={id} id={Number(id)} />;
  if (room === "jobs" && part === "ranks") return <RankPage key={at} id={Number(id)} rank={Number(which)} />;
  if (room === "jobs" && id) return <JobPage key={id} id={Number(id)} />;
  if (room === "nodes" && id) return <NodePage key={id} name={decoded(id)} />;
  if (room === "questions") return <QuestionsPage />;
  if (room === "nodes") return <NodesPage />;
  if (room === "bundle") return <BundlePage id={id ?? ""} />;
  if (room === "silences") return <SilencesPage />;
  if (room === "destinations") return <DestinationsPage />;
  if (room === "scorecard") return <ScorecardPage />;
  if (room === "audit") return <AuditPage />;
  if (room === "settings") return <SettingsPage />;
  return <NoPage />;
}

function NoPage() {
  useEffect(() => {
    pageTitle.value = "Nothing here";
  }, []);
  return <NotFound />;
}

/** A part of an address as it was before it was escaped; as it stands where it is no such thing. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
