/*
 * Entry of the one application behind every page: starts the keyboard, the link follower, the team's stream and the
 * tab badge, then draws the page the address names.
 */

import { render } from "preact";
import { App } from "./App";
import { followLinks } from "./state/address";
import { startBadge } from "./state/badge";
import { startKeys } from "./state/keys";
import { startTeam } from "./state/team";
import { showTheme } from "./state/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/shell.css";
import "./styles/narrow.css";
import "./styles/pages.css";
import "./styles/job.css";
import "./styles/clock.css";
import "./styles/incident.css";
import "./styles/panels.css";
import "./styles/answers.css";
import "./styles/canvas.css";
import "./styles/grid.css";
import "./styles/plotly.css";
import "./styles/standing.css";
import "./styles/tables.css";
import "./styles/dumps.css";
import "./styles/stacks.css";
import "./styles/scrubber.css";
import "./styles/handling.css";
import "./styles/palette.css";

const root = document.getElementById("app");
if (root) {
  showTheme();
  startKeys();
  followLinks(document.body);
  startBadge();
  void startTeam();
  render(<App />, root);
}
