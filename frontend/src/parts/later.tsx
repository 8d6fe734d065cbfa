/*
 * Pages that few look at are fetched when somebody does, so that the first look at an incident waits for less. A page
 * that stayed open over an upgrade asks for a file that is gone: once the server answers again, it is loaded anew.
 */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { readSession } from "../api";
import { Loading } from "./bits";
import { Failure } from "./Failure";

/** A file that is missing on a page this young was not upgraded away: loading anew would not end. */
const OLD_PAGE_MS = 60_000;

export function later<P extends object>(fetchPage: () => Promise<ComponentType<P>>, what: string): ComponentType<P> {
  let fetched: ComponentType<P> | null = null;
  return function Later(props: P) {
    const [Page, setPage] = useState<ComponentType<P> | null>(() => fetched);
    const [failure, setFailure] = useState<Error | null>(null);
    const load = async () => {
      try {
        fetched = await fetchPage();
        setPage(() => fetched);
      } catch (error) {
        setFailure(error as Error);
        if (performance.now() > OLD_PAGE_MS) await readSession().then(() => location.reload(), setFailure);
      }
    };
    useEffect(() => {
      if (!fetched) void load();
    }, []);
    if (Page) return <Page {...props} />;
    return failure ? <Failure error={failure} again={() => void load()} /> : <Loading what={what} />;
  };
}
