/*
 * The bar on every page: where one is, whether the page is live, the zone and the theme. On a phone the pages move to
 * the bottom edge, where a thumb is.
 */

import { useRef } from "preact/hooks";
import { path } from "../state/address";
import { setZone, zone, zoneLabel } from "../state/clock";
import { paletteOpen } from "../state/keys";
import { openIncidents, session } from "../state/team";
import { setTheme, type Theme, theme } from "../state/theme";
import { LiveMark } from "./LiveMark";

const PAGES = [
  { href: "/", word: "Now", icon: "M2 9h3l2-6 3 11 2-5h2" },
  { href: "/incidents", word: "Incidents", icon: "M8 2l6.5 12h-13zM8 6.500v3.500M8 12v.3" },
  { href: "/nodes", word: "Nodes", icon: "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h1M4.5 11h1" },
  { href: "/questions", word: "Questions", icon: "M2 14V2M2 14h12M4 11l3-4 3 2 4-6", isRare: true },
  {
    href: "/silences",
    word: "Silences",
    icon: "M12.500 9.800A5.500 5.500 0 0 1 6.200 3.500a5.500 5.500 0 1 0 6.300 6.300z",
  },
  { href: "/destinations", word: "Destinations", icon: "M2 3h12v8H7l-3 3v-3H2z", isRare: true },
  { href: "/scorecard", word: "Scorecard", icon: "M2 14h12M4 11V8M8 11V4M12 11V6.500", isRare: true },
  { href: "/bundle", word: "Bundle", icon: "M8 10V2M5 5l3-3 3 3M2 9v5h12V9", isRare: true },
  {
    href: "/audit",
    word: "Audit",
    icon: "M3 2h10v12H3zM5.500 5.500h5M5.500 8h5M5.500 10.500h3",
    isRare: true,
    isAdminOnly: true,
  },
  { href: "/settings", word: "Settings", icon: "M2 5h6M12 5h2M2 11h2M8 11h6M10 3.200v3.600M6 9.200v3.6", isRare: true },
];

/** Without those that the reader's role has nothing on. */
const pagesShown = () => PAGES.filter((page) => !page.isAdminOnly || session.value?.role === "admin");

export function TopBar() {
  return (
    <header class="topbar">
      <a class="brand" href="/" aria-label="Diogenes, to Now">
        <Lantern />
        <span>Diogenes</span>
      </a>
      <nav aria-label="Pages">
        {pagesShown().map((page) => (
          <PageLink key={page.href} {...page} />
        ))}
        <MorePages />
      </nav>
      <div class="topbar-end">
        {session.value?.demo && (
          <span class="demo-mark" title="A small live job on this machine; a fault is injected into it.">
            Demo
          </span>
        )}
        <LiveMark />
        <button
          type="button"
          class="quiet palette-button"
          onClick={() => {
            paletteOpen.value = true;
          }}
          aria-label="Find or do: the command palette, Ctrl K"
          title="Find or do … (Ctrl K)"
        >
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9zM10.300 10.300 14 14" />
          </svg>
          <kbd class="wide-only">Ctrl K</kbd>
        </button>
        <ZoneSwitch />
        <ThemeSwitch />
        {session.value && (
          <Account name={session.value.name || session.value.user} role={session.value.role ?? "no team"} />
        )}
      </div>
    </header>
  );
}

interface PageLinkProps {
  href: string;
  word: string;
  icon: string;
  /** Where there is no room for all it stands under "More". */
  isRare?: boolean;
}

const isHere = (href: string) => (href === "/" ? path.value === "/" : path.value.startsWith(href));

/** The pages that have no place in a narrow bar. */
function MorePages() {
  const menu = useRef<HTMLDetailsElement>(null);
  const shut = () => {
    if (menu.current) menu.current.open = false;
  };
  const rare = pagesShown().filter((page) => page.isRare);
  return (
    <details
      class="more-pages"
      ref={menu}
      onFocusOut={(left) => left.relatedTarget && !menu.current?.contains(left.relatedTarget as Node) && shut()}
      onKeyDown={(press) => {
        if (press.key !== "Escape" || !menu.current?.open) return;
        shut();
        menu.current.querySelector("summary")?.focus();
      }}
    >
      <summary class={rare.some(({ href }) => isHere(href)) ? "here" : ""}>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M3 8h.1M8 8h.1M13 8h.1" />
        </svg>
        More
      </summary>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents lint/a11y/noStaticElementInteractions: the links have the keys */}
      <div class="popover" onClick={shut}>
        {rare.map(({ href, word, icon }) => (
          <PageLink key={href} href={href} word={word} icon={icon} />
        ))}
      </div>
    </details>
  );
}

function PageLink({ href, word, icon, isRare = false }: PageLinkProps) {
  const here = isHere(href);
  const badge = href === "/incidents" ? openIncidents.value.length : 0;
  return (
    <a href={href} aria-current={here ? "page" : undefined} class={isRare ? "rare-page" : undefined}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <path d={icon} />
      </svg>
      {word}
      {badge > 0 && (
        <span class="badge" title="Incidents that nobody has acknowledged">
          {badge}
          <span class="visually-hidden"> that nobody has acknowledged</span>
        </span>
      )}
    </a>
  );
}

export function Lantern() {
  return (
    <svg class="lantern" viewBox="0 0 24 24" aria-hidden="true">
      <path d="M9 6a3 3 0 0 1 6 0M7.5 8.500h9M8.5 8.500l-1 9.500h9l-1-9.500M7 20.500h10" />
      <circle cx="12" cy="13.5" r="2" />
    </svg>
  );
}

function ZoneSwitch() {
  const utc = zone.value === "utc";
  return (
    <button
      type="button"
      class="quiet zone"
      onClick={() => setZone(utc ? "browser" : "utc")}
      title={utc ? "Times are UTC. Switch to this browser's zone." : "Times are this browser's. Switch to UTC."}
      aria-label={`Time zone: ${zoneLabel()}. Switch to ${utc ? "this browser's zone" : "UTC"}.`}
    >
      {zoneLabel()}
    </button>
  );
}

const NEXT: Record<Theme, Theme> = { system: "dark", dark: "light", light: "system" };
const THEME_ICON: Record<Theme, string> = {
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  dark: "M13 9.500A5.5 5.5 0 1 1 6.5 3 4.5 4.5 0 0 0 13 9.500z",
  light:
    "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
};

function ThemeSwitch() {
  const next = NEXT[theme.value];
  return (
    <button
      type="button"
      class="quiet icon-button"
      onClick={() => setTheme(next)}
      title={`Colours: ${theme.value}. Switch to ${next}.`}
      aria-label={`Colours: ${theme.value}. Switch to ${next}.`}
    >
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <path d={THEME_ICON[theme.value]} />
      </svg>
    </button>
  );
}

function Account({ name, role }: { name: string; role: string }) {
  return (
    <details class="account">
      <summary>
        <span aria-hidden="true">{name.slice(0, 2)}</span>
        <span class="visually-hidden">
          Signed in as {name}, {role}
        </span>
      </summary>
      <div class="popover">
        <p>
          <b>{name}</b>
          <br />
          <span class="faint">{role}</span>
        </p>
        <form method="post" action="/signout">
          <input type="hidden" name="csrfmiddlewaretoken" value={session.value?.csrf} />
          <button type="submit">Sign out</button>
        </form>
      </div>
    </details>
  );
}
