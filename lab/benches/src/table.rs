//! Plain tables, aligned by their widest cell.

/// Prints `title`, the columns' names and the rows; numbers are aligned to the right.
pub fn print(title: &str, columns: &[&str], rows: &[Vec<String>]) {
    println!("\n{title}");
    let names: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            let cells = rows.iter().chain([&names]);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        })
        .collect();
    println!("{}", line(&names, &widths));
    println!("{}", widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("  "));
    for row in rows {
        println!("{}", line(row, &widths));
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let cells = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
        0 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}
