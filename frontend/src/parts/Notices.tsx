/* The corner with short notices, and the one live region screen readers listen to. */

import { dismiss, notices, spoken } from "../state/notices";

export function Notices() {
  return (
    <>
      <div class="visually-hidden" aria-live="polite" aria-atomic="true">
        {spoken.value}
      </div>
      <div class="notices">
        {notices.value.map((notice) => (
          <div key={notice.id} class={`notice notice-${notice.tone}`}>
            <span>{notice.text}</span>
            <button type="button" class="quiet" onClick={() => dismiss(notice.id)} aria-label="Dismiss">
              ×
            </button>
          </div>
        ))}
      </div>
    </>
  );
}
