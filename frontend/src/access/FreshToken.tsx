/* A secret that was just made: it is in sight once, so that a click beside the dialog does not lose it. */

import { Copy } from "../parts/bits";
import { Dialog } from "../parts/Dialog";

export function FreshToken({ token, onClose }: { token: string; onClose: () => void }) {
  return (
    <Dialog title="Copy the token now" onClose={onClose}>
      <p>It will not be shown again.</p>
      <p>
        <Copy text={token} label="token" />
      </p>
      <div class="dialog-actions">
        <button type="button" class="primary" onClick={onClose}>
          I have copied it
        </button>
      </div>
    </Dialog>
  );
}
