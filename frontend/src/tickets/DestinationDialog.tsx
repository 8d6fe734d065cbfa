/* Making and changing a destination. Stored secrets are never shown: an empty field keeps the one that is there. */

import { useState } from "preact/hooks";
import { randomKey } from "../api";
import { Dialog } from "../parts/Dialog";
import { notify } from "../state/notices";
import {
  changeDestination,
  type DestinationKind,
  type DestinationRow,
  type DestinationSetting,
  makeDestination,
  overtakenBy,
} from "./calls";
import { Templates, type TemplateTexts } from "./Templates";

interface DestinationDialogProps {
  kinds: DestinationKind[];
  teams: string[];
  /** The one that is changed; none for a new one. */
  row?: DestinationRow | undefined;
  onClose: () => void;
  onDone: () => void;
}

export function DestinationDialog({ kinds, teams, row, onClose, onDone }: DestinationDialogProps) {
  const [kind, setKind] = useState(row?.kind ?? kinds[0].name);
  const [name, setName] = useState(row?.name ?? "");
  const [severity, setSeverity] = useState<string>(row?.severity_min ?? "low");
  const [team, setTeam] = useState(row?.team ?? teams[0]);
  const [settings, setSettings] = useState<Record<string, string>>(row?.settings ?? {});
  const [texts, setTexts] = useState<TemplateTexts>({
    title_template: row?.title_template ?? "",
    body_template: row?.body_template ?? "",
  });
  const [failed, setFailed] = useState("");
  const [busy, setBusy] = useState(false);
  const [version, setVersion] = useState(row?.version ?? 0);
  const [key] = useState(randomKey);
  const fields = kinds.find((one) => one.name === kind)?.settings ?? [];
  const chooseKind = (chosen: string) => {
    setKind(chosen);
    setSettings({}); // a secret typed for one kind must not go to another
  };
  const send = async () => {
    setBusy(true);
    const given = Object.fromEntries(fields.map((one) => [one.name, settings[one.name] ?? ""]));
    const form = { name: name.trim(), settings: given, severity_min: severity, ...texts };
    try {
      await (row ? changeDestination(row.id, version, form) : makeDestination({ ...form, kind, team }, key));
      notify(row ? "Changed." : "Made: now send a test.");
      onDone();
      onClose();
    } catch (error) {
      const overtaken = overtakenBy(error);
      if (overtaken) setVersion(overtaken.version); // whoever has read this may go on
      setFailed(
        overtaken
          ? `${overtaken.words} Change it once more to put yours in its place.`
          : String((error as Error).message),
      );
      setBusy(false);
    }
  };
  return (
    <Dialog title={row ? `Change ${row.name}` : "New destination"} onClose={onClose}>
      <form
        class="silence-form"
        onSubmit={(submit) => {
          submit.preventDefault();
          void send();
        }}
      >
        {!row && (
          <Select id="kind" word="Kind" value={kind} put={chooseKind} of={kinds.map((one) => [one.name, one.title])} />
        )}
        {!row && teams.length > 1 && (
          <Select id="team" word="Team" value={team} put={setTeam} of={teams.map((one) => [one, one])} />
        )}
        <label for="destination-name">Name</label>
        <input
          id="destination-name"
          required
          maxLength={80}
          value={name}
          onInput={(input) => setName(input.currentTarget.value)}
        />
        {fields.map((one) => (
          <Field
            key={one.name}
            setting={one}
            value={settings[one.name] ?? ""}
            isStored={Boolean(row?.has_secrets)}
            onInput={(text) => setSettings((old) => ({ ...old, [one.name]: text }))}
          />
        ))}
        <Select
          id="severity"
          word="Least severity"
          value={severity}
          put={setSeverity}
          of={["low", "medium", "high"].map((one) => [one, one])}
        />
        <Templates parts={kinds.find((one) => one.name === kind)?.templates ?? []} texts={texts} put={setTexts} />
        {failed && (
          <p class="warning" role="alert">
            {failed}
          </p>
        )}
        <div class="dialog-actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy || !name.trim()}>
            {row ? "Change" : "Make"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface SelectProps {
  id: string;
  word: string;
  value: string;
  put: (value: string) => void;
  of: string[][];
}

function Select({ id, word, value, put, of }: SelectProps) {
  return (
    <>
      <label for={`destination-${id}`}>{word}</label>
      <select id={`destination-${id}`} value={value} onChange={(change) => put(change.currentTarget.value)}>
        {of.map(([one, shown]) => (
          <option key={one} value={one} selected={one === value}>
            {shown}
          </option>
        ))}
      </select>
    </>
  );
}

interface FieldProps {
  setting: DestinationSetting;
  value: string;
  isStored: boolean;
  onInput: (text: string) => void;
}

function Field({ setting, value, isStored, onInput }: FieldProps) {
  const id = `setting-${setting.name}`;
  const isKept = setting.is_secret && isStored;
  const common = {
    id,
    spellcheck: false,
    required: setting.is_needed && !isKept,
    maxLength: 1000,
    placeholder: isKept ? (setting.is_needed ? "as stored" : "as stored, if there is one") : setting.usual,
    value,
    onInput: (input: { currentTarget: HTMLInputElement }) => onInput(input.currentTarget.value),
  };
  return (
    <>
      <label for={id}>
        {setting.words}
        {!setting.is_needed && <span class="faint"> (optional)</span>}
      </label>
      {setting.choices.length > 0 ? (
        <select id={id} value={value || setting.usual} onChange={(change) => onInput(change.currentTarget.value)}>
          {setting.choices.map((one) => (
            <option key={one} value={one} selected={one === (value || setting.usual)}>
              {one}
            </option>
          ))}
        </select>
      ) : setting.is_secret ? (
        <input type="password" autoComplete="new-password" {...common} />
      ) : (
        <input type="text" autoComplete="off" {...common} />
      )}
    </>
  );
}
