/*
 * Pages that few look at are fetched when somebody does, so that the first look at an incident waits for less.
 */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Loading } from "./bits";
import { Failure } from "./Failure";

export function later<P extends object>(fetchPage: () => Promise<ComponentType<P>>, what: string): ComponentType<P> {
  let fetched: ComponentType<P> | null = null;
  return function Later(props: P) {
    const [Page, setPage] = useState<ComponentType<P> | null>(() => fetched);
    const [failure, setFailure] = useState<Error | null>(null);
    const load = () => {
      fetchPage().then((page) => {
        fetched = page;
        setPage(() => page);
      }, setFailure);
    };
    useEffect(() => {
      if (!fetched) load();
    }, []);
    if (Page) return <Page {...props} />;
    return failure ? <Failure error={failure} again={load} /> : <Loading what={what} />;
  };
}
