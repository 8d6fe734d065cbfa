/*
 * Sending a bundle. XMLHttpRequest, as fetch does not tell how much of a body has been sent, and half a gigabyte takes
 * long enough for people to wonder.
 */

import { ApiError, csrf } from "../api";

export const BUNDLE_BYTES_MAX = 512 * 1024 * 1024;

export interface Upload {
  /** The bundle's id, once the server has all of it. */
  done: Promise<string>;
  stop: () => void;
}

/** Why a file cannot be a bundle, before any of it is sent; "" when it may be one. */
export function refusalOf(file: Pick<File, "name" | "size">): string {
  if (!file.name.toLowerCase().endsWith(".zip")) return `${file.name} is not a zip. Put the dumps into one zip file.`;
  if (file.size === 0) return `${file.name} is empty.`;
  if (file.size > BUNDLE_BYTES_MAX)
    return `${file.name} has ${sizeWords(file.size)}; ${sizeWords(BUNDLE_BYTES_MAX)} are read here. Read it with python -m rca bundle instead.`;
  return "";
}

export function sizeWords(bytes: number): string {
  const [unit, size] = bytes >= 1e9 ? ["GB", 1e9] : bytes >= 1e6 ? ["MB", 1e6] : ["kB", 1e3];
  return `${(bytes / size).toLocaleString("en-US", { maximumFractionDigits: bytes >= 1e9 ? 1 : 0 })} ${unit}`;
}

/** `team` must be named by who acts for several. `onProgress`: the share that was sent, 0 to 1. */
export function sendBundle(file: File, team: string | undefined, onProgress: (share: number) => void): Upload {
  const request = new XMLHttpRequest();
  const done = new Promise<string>((settle, fail) => {
    request.upload.onprogress = ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0);
    request.onload = () => {
      const answer = parsed(request.responseText);
      if (request.status === 202 && answer.id !== undefined) settle(String(answer.id));
      else fail(new ApiError(request.status, String(answer.code ?? ""), refusedWords(request.status, answer), answer));
    };
    request.onerror = () => fail(new Error("The server cannot be reached, or it stopped reading."));
    request.onabort = () => fail(new Error("Stopped."));
  });
  const body = new FormData();
  if (team) body.append("team", team);
  body.append("file", file);
  request.open("POST", "/api/v1/bundles");
  request.setRequestHeader("Accept", "application/json");
  request.setRequestHeader("X-CSRFToken", csrf);
  request.send(body);
  return { done, stop: () => request.abort() };
}

function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}

function refusedWords(status: number, answer: Record<string, unknown>): string {
  return String(answer.error ?? answer.detail ?? `The server answered ${status}.`);
}
