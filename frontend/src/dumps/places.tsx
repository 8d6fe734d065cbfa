/* Known places of training code as an icon beside the word, so that a data loader is told from a checkpoint at a glance. */

const ICONS: [RegExp, string][] = [
  [
    /data.?loader/i,
    "M8 2c3.300 0 5 .9 5 2s-1.700 2-5 2-5-.9-5-2 1.700-2 5-2zM3 4v8c0 1.100 1.700 2 5 2s5-.9 5-2V4M3 8c0 1.100 1.700 2 5 2s5-.9 5-2",
  ],
  [/checkpoint/i, "M3 2h8l2 2v10H3zM5 2v4h5V2M5 14v-4h6v4"],
  [/barrier/i, "M2 5h12v4H2zM5 5l-2 4M9 5l-2 4M13 5l-2 4M4 9v5M12 9v5"],
  [
    /collective|nccl/i,
    "M4 3a1.500 1.500 0 1 0 0 .1M12 3a1.500 1.500 0 1 0 0 .1M4 13a1.500 1.500 0 1 0 0 .1M12 13a1.500 1.500 0 1 0 0 .1M5 4l6 8M11 4l-6 8M5 3h6M5 13h6",
  ],
  [/gpu|cuda/i, "M4 4h8v8H4zM6 2v2M10 2v2M6 12v2M10 12v2M2 6h2M2 10h2M12 6h2M12 10h2"],
  [/store|rendezvous/i, "M8 1.500l5.500 3v7L8 14.500l-5.500-3v-7zM2.500 4.500L8 7.500l5.500-3M8 7.500v7"],
  [/gil|lock/i, "M4 7h8v7H4zM5.500 7V4.500a2.500 2.500 0 0 1 5 0V7"],
  [/garbage/i, "M3 4h10M6 4V2.500h4V4M4.500 4l.7 10h5.600l.7-10M7 7v4M9 7v4"],
  [/compil/i, "M5 4L1.500 8 5 12M11 4l3.500 4L11 12M9.500 3l-3 10"],
  [/nothing|unknown/i, "M6 6a2 2 0 1 1 3 1.700C8.300 8.200 8 8.600 8 9.500M8 12v.2"],
];
const OWN_CODE = "M3 2h7l3 3v9H3zM6 7h4M6 10h4";

export function PlaceIcon({ place }: { place: string }) {
  const path = ICONS.find(([pattern]) => pattern.test(place))?.[1] ?? OWN_CODE;
  return (
    <svg class="place-icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

export function PlaceWord({ place }: { place: string }) {
  return (
    <span class="place-word">
      <PlaceIcon place={place} />
      {place.charAt(0).toUpperCase() + place.slice(1)}
    </span>
  );
}
