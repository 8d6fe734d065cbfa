/* A secret that was just made: it is in sight once, so that a click beside the dialog does not lose it. */

import { Copy } from "../parts/bits";
import { Dialog } from "../parts/Dialog";

interface FreshTokenProps {
  token: string;
  /** A path that shows that it works; none for tokens of agents. */
  tryPath?: string;
  onClose: () => void;
}

export function FreshToken({ token, tryPath, onClose }: FreshTokenProps) {
  return (
    <Dialog title="Copy the token now" onClose={onClose}>
      <p>It will not be shown again.</p>
      <p>
        <Copy text={token} label="token" />
      </p>
      {tryPath && (
        <p>
          Try it:{" "}
          <Copy text={`curl -H "Authorization: Bearer ${token}" ${location.origin}${tryPath}`} label="command" />
        </p>
      )}
      <div class="dialog-actions">
        <button type="button" class="primary" onClick={onClose}>
          I have copied it
        </button>
      </div>
    </Dialog>
  );
}
