/* The frame around every page, and which page an address means. */

import type { ComponentChildren } from "preact";
import { IncidentPage } from "./pages/IncidentPage";
import { IncidentsPage } from "./pages/IncidentsPage";
import { NowPage } from "./pages/NowPage";
import { Loading } from "./parts/bits";
import { Failure, NotFound } from "./parts/Failure";
import { Help, helpOpen } from "./parts/Help";
import { StaleBanner } from "./parts/LiveMark";
import { later } from "./parts/later";
import { Notices } from "./parts/Notices";
import { TopBar } from "./parts/TopBar";
import { go, path } from "./state/address";
import { useKeys } from "./state/keys";
import { away, session, sessionFailure, startTeam } from "./state/team";

const JobPage = later(async () => (await import("./pages/JobPage")).JobPage, "the job");
const NodesPage = later(async () => (await import("./pages/NodesPage")).NodesPage, "nodes");
const SettingsPage = later(async () => (await import("./pages/SettingsPage")).SettingsPage, "settings");
const BundlePage = later(async () => (await import("./pages/BundlePage")).BundlePage, "the page");
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
    </>
  );
}

function content(): ComponentChildren {
  if (sessionFailure.value) return <Failure error={sessionFailure.value} again={() => void startTeam()} />;
  if (!session.value) return <Loading what="the console" />;
  return page(path.value);
}

function page(at: string): ComponentChildren {
  const [, room, id, part] = at.split("/");
  if (room === "") return <NowPage />;
  if (room === "incidents" && id) return <IncidentPage key={id} number={Number(id)} />;
  if (room === "incidents") return <IncidentsPage />;
  if (room === "jobs" && part === "settings") return <JobSettingsPage key={id} id={Number(id)} />;
  if (room === "jobs" && id) return <JobPage key={id} id={Number(id)} />;
  if (room === "nodes") return <NodesPage />;
  if (room === "bundle") return <BundlePage id={id ?? ""} />;
  if (room === "settings") return <SettingsPage />;
  return <NotFound />;
}
