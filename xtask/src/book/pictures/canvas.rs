//! A small drawing module: blocks, arrows and texts, as SVG.

use std::fmt::Write as _;

/// The language of a picture's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    English,
    Chinese,
}

/// A text in English and in Chinese. Lines are separated by `\n`; parts between backticks are code.
pub(super) type Label = [&'static str; 2];

/// Returns a label that is the same in both languages, such as a path.
pub(super) const fn same(text: &'static str) -> Label {
    [text, text]
}

/// A rectangle: left, top, width, height.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area(pub(super) i32, pub(super) i32, pub(super) i32, pub(super) i32);

/// The meaning of a colour.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tone {
    Plain,
    Accent,
    Good,
    Warning,
    Bad,
}

/// The side of a text at which its position is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being drawn.
pub(super) struct Canvas {
    language: Language,
    size: (i32, i32),
    title: Label,
    elements: String,
    misfits: Vec<String>,
}

/// The width of all pictures.
const WIDTH: i32 = 860;
const TEXT_SIZE: i32 = 13;
const TITLE_SIZE: i32 = 15;
/// The distance of two lines of text.
const LINE_HEIGHT: i32 = 18;
/// The least distance of a text from the sides of its block.
const MARGIN: i32 = 6;
const INK: &str = "#1f2328";

impl Canvas {
    pub(super) fn new(language: Language, height: i32, title: Label) -> Self {
        Self { language, size: (WIDTH, height), title, elements: String::new(), misfits: Vec::new() }
    }

    /// Draws a block with a bold title and lines below it, either of which may be empty.
    pub(super) fn block(&mut self, area: Area, tone: Tone, title: Label, body: Label) {
        self.rectangle(area, tone.fill(), tone.stroke(), 8);
        let Area(left, top, width, height) = area;
        let (title, body) = (self.say(title), self.say(body));
        let lines = title.lines().map(|line| (line, TITLE_SIZE));
        let lines: Vec<_> = lines.chain(body.lines().map(|line| (line, TEXT_SIZE))).collect();
        let spare = height - LINE_HEIGHT * i32::try_from(lines.len()).unwrap_or_default();
        // The baseline is a good half of the capitals' height below the middle of the line.
        let mut baseline = top + spare / 2 + 14;
        for (line, size) in lines {
            self.check_width(line, size, width - 2 * MARGIN);
            self.line_of_text(left + width / 2, baseline, Anchor::Middle, size, INK, line);
            baseline += LINE_HEIGHT;
        }
    }

    /// Draws a frame around other blocks, with a caption in its upper left corner.
    pub(super) fn frame(&mut self, area: Area, caption: Label) {
        self.rectangle(area, "#fbfcfd", "#8c959f", 10);
        let (Area(left, top, width, _), caption) = (area, self.say(caption));
        for (line, baseline) in caption.lines().zip((top + 22..).step_by(LINE_HEIGHT as usize)) {
            self.check_width(line, TITLE_SIZE, width - 24);
            self.line_of_text(left + 12, baseline, Anchor::Start, TITLE_SIZE, INK, line);
        }
    }

    /// Fills an area with a tone, without a border.
    pub(super) fn fill(&mut self, area: Area, tone: Tone) {
        self.rectangle(area, tone.fill(), "none", 0);
    }

    /// Draws lines of text; the position is the baseline of the first one.
    pub(super) fn text(&mut self, (x, y): (i32, i32), anchor: Anchor, tone: Tone, label: Label) {
        let label = self.say(label);
        for (line, baseline) in label.lines().zip((y..).step_by(LINE_HEIGHT as usize)) {
            let width = text_width(line, TEXT_SIZE);
            let left = match anchor {
                Anchor::Start => x,
                Anchor::Middle => x - width / 2,
                Anchor::End => x - width,
            };
            if left < 0 || left + width > self.size.0 {
                self.misfits.push(line.to_owned());
            }
            self.line_of_text(x, baseline, anchor, TEXT_SIZE, tone.ink(), line);
        }
    }

    /// Draws a line through points.
    pub(super) fn line(&mut self, points: &[(i32, i32)], tone: Tone) {
        self.polyline(points, tone, "");
    }

    /// Draws a dashed line through points.
    pub(super) fn dashes(&mut self, points: &[(i32, i32)], tone: Tone) {
        self.polyline(points, tone, " stroke-dasharray=\"5 4\"");
    }

    /// Draws a line through points, with a head at the last one.
    pub(super) fn arrow(&mut self, points: &[(i32, i32)], tone: Tone) {
        self.line(points, tone);
        if let [.., from, to] = points {
            self.head(*from, *to, tone);
        }
    }

    pub(super) fn dot(&mut self, (x, y): (i32, i32), tone: Tone) {
        let _ = writeln!(self.elements, "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"{}\"/>", tone.stroke());
    }

    /// Returns the texts that are wider than their places.
    pub(super) fn misfits(&self) -> &[String] {
        &self.misfits
    }

    pub(super) fn svg(&self) -> String {
        let (width, height) = self.size;
        let fonts = match self.language {
            Language::English => "Helvetica, Arial, sans-serif",
            Language::Chinese => {
                "Helvetica, Arial, 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', sans-serif"
            }
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" font-family=\"{fonts}\" role=\"img\">\n\
             <!-- Drawn by xtask/src/book/pictures: do not edit. -->\n\
             <title>{}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"12\" fill=\"#ffffff\"/>\n\
             {}</svg>\n",
            escaped(self.say(self.title)),
            self.elements
        )
    }

    fn say(&self, label: Label) -> &'static str {
        let [english, chinese] = label;
        match self.language {
            Language::English => english,
            Language::Chinese => chinese,
        }
    }

    fn check_width(&mut self, line: &str, size: i32, most: i32) {
        if text_width(line, size) > most {
            self.misfits.push(line.to_owned());
        }
    }

    fn rectangle(&mut self, Area(x, y, width, height): Area, fill: &str, stroke: &str, radius: i32) {
        let _ = writeln!(
            self.elements,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>"
        );
    }

    fn polyline(&mut self, points: &[(i32, i32)], tone: Tone, more: &str) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
        let _ = writeln!(
            self.elements,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{more}/>",
            points.join(" "),
            tone.stroke()
        );
    }

    /// Draws the head of an arrow that comes from one point and ends at another.
    fn head(&mut self, from: (i32, i32), to: (i32, i32), tone: Tone) {
        let (x, y) = (f64::from(to.0), f64::from(to.1));
        let (dx, dy) = (x - f64::from(from.0), y - f64::from(from.1));
        let length = dx.hypot(dy).max(1.0);
        let (ux, uy) = (dx / length, dy / length);
        let corner = |side: f64| (x - 10.0 * ux - 5.0 * side * uy, y - 10.0 * uy + 5.0 * side * ux);
        let ((ax, ay), (bx, by)) = (corner(1.0), corner(-1.0));
        let _ = writeln!(
            self.elements,
            "<polygon points=\"{x},{y} {ax:.1},{ay:.1} {bx:.1},{by:.1}\" fill=\"{}\"/>",
            tone.stroke()
        );
    }

    fn line_of_text(&mut self, x: i32, y: i32, anchor: Anchor, size: i32, ink: &str, line: &str) {
        let weight = if size == TITLE_SIZE { " font-weight=\"bold\"" } else { "" };
        let _ = write!(
            self.elements,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{ink}\" text-anchor=\"{}\"{weight}>",
            anchor.name()
        );
        for (part, is_code) in parts(line) {
            let _ = match is_code {
                true => {
                    write!(self.elements, "<tspan font-family=\"monospace\">{}</tspan>", escaped(part))
                }
                false => write!(self.elements, "{}", escaped(part)),
            };
        }
        self.elements.push_str("</text>\n");
    }
}

impl Tone {
    fn fill(self) -> &'static str {
        match self {
            Self::Plain => "#f3f5f7",
            Self::Accent => "#ddf4ff",
            Self::Good => "#dafbe1",
            Self::Warning => "#fff8c5",
            Self::Bad => "#ffebe9",
        }
    }

    fn stroke(self) -> &'static str {
        match self {
            Self::Plain => "#57606a",
            Self::Accent => "#0969da",
            Self::Good => "#1a7f37",
            Self::Warning => "#9a6700",
            Self::Bad => "#cf222e",
        }
    }

    fn ink(self) -> &'static str {
        match self {
            Self::Plain => INK,
            other => other.stroke(),
        }
    }
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Splits a line at its backticks; every second part is code.
fn parts(line: &str) -> impl Iterator<Item = (&str, bool)> {
    line.split('`').enumerate().map(|(number, part)| (part, number % 2 == 1))
}

/// Estimates the width of a line: the fonts of readers differ, so this is a wide one's.
fn text_width(line: &str, size: i32) -> i32 {
    let of_part = |(part, is_code): (&str, bool)| part.chars().map(|c| char_width(c, is_code)).sum::<i32>();
    parts(line).map(of_part).sum::<i32>() * size / 100
}

/// Estimates the width of a character, in hundredths of the font's size.
fn char_width(c: char, is_code: bool) -> i32 {
    match c {
        '\u{2e80}'.. => 100,
        _ if is_code => 61,
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 30,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '/' | '-' => 36,
        'm' | 'w' | 'M' | 'W' => 85,
        'A'..='Z' => 70,
        _ => 58,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canvas(language: Language) -> Canvas {
        Canvas::new(language, 100, ["A title", "标题"])
    }

    #[test]
    fn texts_are_escaped_and_localized() {
        let label = ["a < b & `c`", "甲 > 乙"];
        let mut english = canvas(Language::English);
        english.text((5, 20), Anchor::Start, Tone::Plain, label);
        assert!(english.svg().contains(">a &lt; b &amp; <tspan font-family=\"monospace\">c</tspan></text>"));
        let mut chinese = canvas(Language::Chinese);
        chinese.text((5, 20), Anchor::Start, Tone::Plain, label);
        assert!(chinese.svg().contains(">甲 &gt; 乙</text>"));
        assert!(chinese.svg().contains("<title>标题</title>"));
        assert_eq!(chinese.svg().matches("--").count(), 2, "a comment holds no hyphens in a row");
    }

    #[test]
    fn texts_without_room_are_found() {
        let mut canvas = canvas(Language::English);
        canvas.block(Area(0, 0, 200, 50), Tone::Good, same("short"), same("also short"));
        assert_eq!(canvas.misfits(), [""; 0]);
        canvas.block(Area(0, 0, 60, 50), Tone::Good, same("short"), same("much too long for it"));
        canvas.frame(Area(0, 0, 60, 50), same("a caption that is too long"));
        canvas.text((850, 20), Anchor::Start, Tone::Plain, same("over the right side"));
        canvas.text((20, 20), Anchor::Middle, Tone::Plain, same("over the left side"));
        let expected = [
            "much too long for it",
            "a caption that is too long",
            "over the right side",
            "over the left side",
        ];
        assert_eq!(canvas.misfits(), expected);
    }

    #[test]
    fn arrows_have_heads_at_their_ends() {
        let mut canvas = canvas(Language::English);
        canvas.arrow(&[(10, 10), (10, 50), (60, 50)], Tone::Plain);
        assert!(canvas.svg().contains("<polygon points=\"60,50 50.0,55.0 50.0,45.0\""), "{}", canvas.svg());
    }
}
