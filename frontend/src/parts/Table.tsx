/*
 * The one table: columns say their word and how a row fills them, and both the head and every line follow. The first
 * cell names its row. In a box of class "cards" a phone shows each row as a card, with the columns' words in it.
 */

import type { ComponentChildren } from "preact";
import { ScrollBox } from "./ScrollBox";

export interface Column<Row> {
  /** "" of buttons, which say what they are. */
  word: string;
  cell: (row: Row) => ComponentChildren;
  isNumber?: boolean;
  /** Left out where the page is narrow. */
  isWideOnly?: boolean;
  class?: (row: Row) => string;
  title?: string;
}

interface TableProps<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row, n: number) => string | number;
  caption?: ComponentChildren;
  isCards?: boolean;
  line?: (row: Row) => { class?: string; onClick?: (click: MouseEvent) => void };
  /** Below the table, in its box. */
  children?: ComponentChildren;
}

export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, rows, rowKey, caption, isCards, line, children } = props;
  return (
    <ScrollBox class={`table-box ${isCards ? "cards" : ""}`} label={label}>
      <table>
        {caption && <caption>{caption}</caption>}
        <thead>
          <tr>
            {columns.map((column) =>
              column.word ? (
                <th key={column.word} scope="col" class={classOf(column)} title={column.title}>
                  {column.word}
                </th>
              ) : (
                <td key="" />
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, n) => (
            <tr key={rowKey(row, n)} {...line?.(row)}>
              {columns.map((column, place) =>
                place === 0 ? (
                  <th key={column.word} scope="row" class={column.class?.(row)}>
                    {column.cell(row)}
                  </th>
                ) : (
                  <td
                    key={column.word}
                    class={`${classOf(column)} ${column.class?.(row) ?? ""}`}
                    data-word={column.word}
                  >
                    {column.cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {children}
    </ScrollBox>
  );
}

function classOf<Row>({ isNumber, isWideOnly }: Column<Row>): string {
  return [isNumber && "num", isWideOnly && "wide-only"].filter(Boolean).join(" ");
}
