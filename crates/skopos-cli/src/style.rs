//! Colours, used on terminals only.
use std::fmt::Display;
use std::io::IsTerminal;

/// Painter of text for one stream. It uses colours or leaves the text as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    colour: bool,
}

/// Meaning of a colour, rather than the colour itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// New, or healthy again
    Good,
    /// Changed, or worth a look
    Notice,
    /// Gone, or broken
    Bad,
    /// Less important
    Faint,
}

impl Style {
    /// Uses colours if the stream is a terminal that supports them and `NO_COLOR` is not set (<https://no-color.org>).
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { colour: stream.is_terminal() && !refused && !dumb }
    }

    /// Uses no colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { colour: false }
    }

    /// Returns the text in the colour of this tone.
    pub(crate) fn paint(self, tone: Tone, text: impl Display) -> String {
        if !self.colour {
            return text.to_string();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Notice => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
