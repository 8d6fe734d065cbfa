/* The frame around every page, and which page an address means. */

import type { ComponentChildren } from "preact";
import { IncidentPage } from "./pages/IncidentPage";
import { IncidentsPage } from "./pages/IncidentsPage";
import { JobPage } from "./pages/JobPage";
import { NodesPage } from "./pages/NodesPage";
import { NowPage } from "./pages/NowPage";
import { SettingsPage } from "./pages/SettingsPage";
import { Loading } from "./parts/bits";
import { Failure, NotFound } from "./parts/Failure";
import { Help, helpOpen } from "./parts/Help";
import { StaleBanner } from "./parts/LiveMark";
import { Notices } from "./parts/Notices";
import { TopBar } from "./parts/TopBar";
import { go, path } from "./state/address";
import { useKeys } from "./state/keys";
import { away, session, sessionFailure, startTeam } from "./state/team";

export function App() {
  useKeys({
    "?": () => {
      helpOpen.value = true;
    },
    g: () => go("/"),
    i: () => go("/incidents"),
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
  const [, room, id] = at.split("/");
  if (room === "") return <NowPage />;
  if (room === "incidents" && id) return <IncidentPage key={id} number={Number(id)} />;
  if (room === "incidents") return <IncidentsPage />;
  if (room === "jobs" && id) return <JobPage key={id} id={Number(id)} />;
  if (room === "nodes") return <NodesPage />;
  if (room === "settings") return <SettingsPage />;
  return <NotFound />;
}
