//! Rows of text in aligned columns.

/// Returns each row as a line, its cells padded to the widest of their column, three spaces between, none at the end.
pub fn align<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.to_vec()).collect();
    align_rows(&rows)
}

/// Does the same for rows whose number of columns is known at run time only.
pub fn align_rows(rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 3));
        }
        line.truncate(line.trim_end().len());
        line
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "long name", ""], ["→→→", "b", "c"]].map(|row| row.map(String::from));
        assert_eq!(align(&rows), ["a     long name", "→→→   b           c"]);
    }
}
