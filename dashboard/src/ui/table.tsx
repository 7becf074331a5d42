import type { ReactNode } from "react";

export interface Column<Row> {
  name: string;
  of: (row: Row) => ReactNode;
  /** Numbers stand at the end of their column. */
  number?: boolean;
}

interface Table<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  id: (row: Row) => string;
  empty?: string;
}

/** A table with a caption; the first column names the row. On a narrow screen it scrolls by itself. */
export function Table<Row>({ caption, columns, rows, id, empty = "Nothing yet." }: Table<Row>) {
  if (rows.length === 0) return <p className="soft">{empty}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard
    <section className="scroll" tabIndex={0} aria-label={caption}>
      <table>
        <caption>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} scope="col" className={column.number ? "number" : undefined}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column, place) =>
                place === 0 ? (
                  <th key={column.name} scope="row">
                    {column.of(row)}
                  </th>
                ) : (
                  <td key={column.name} className={column.number ? "number" : undefined}>
                    {column.of(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
