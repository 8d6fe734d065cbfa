/* Links to the pages of ranks and of the nodes they run on, wherever ranks are named. */

import { nodeHref, rankHref } from "./calls";

const SHOWN_MAX = 4;

interface RankLinksProps {
  jobId: number;
  ranks: readonly number[];
  nodeOf: (rank: number) => string;
}

export function RankLinks({ jobId, ranks, nodeOf }: RankLinksProps) {
  const shown = ranks.slice(0, SHOWN_MAX);
  const nodes = [...new Set(shown.map(nodeOf).filter(Boolean))];
  if (shown.length === 0) return null;
  return (
    <p class="rank-links">
      {shown.map((rank) => (
        <a key={rank} href={rankHref(jobId, rank)}>
          Page of rank {rank}
        </a>
      ))}
      {nodes.map((node) => (
        <a key={node} href={nodeHref(node)}>
          Page of {node}
        </a>
      ))}
    </p>
  );
}
