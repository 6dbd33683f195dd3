//! The parameters of a request, in one unambiguous spelling.

use std::fmt;

use skopos_wire::Status;

/// Decoded parameters. Printing encodes them again, so that a member reads exactly what was authorized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

/// The maximum length of a query. The API server's own clients stay far below.
const MAX_QUERY_BYTES: usize = 32 * 1024;

impl Query {
    /// Parses the part after the question mark.
    ///
    /// # Errors
    /// If it is too long, is not UTF-8, or has an escape or a semicolon that readers interpret differently.
    pub fn parse(text: &str) -> Result<Self, Status> {
        if text.len() > MAX_QUERY_BYTES {
            return Err(Status::bad_request("the query is too long"));
        }
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            // Go ignores pairs with a semicolon or a broken escape, others do not.
            if pair.contains(';') {
                return Err(Status::bad_request("the query has a semicolon that is not encoded"));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self { pairs })
    }

    /// Returns all values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a parameter that must be unambiguous.
    ///
    /// # Errors
    /// 400 if it occurs twice with different values.
    pub fn single<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Status> {
        let mut all = self.all(name);
        let first = all.next();
        match all.all(|other| Some(other) == first) {
            true => Ok(first),
            false => Err(Status::bad_request(format!("{name} is given twice"))),
        }
    }

    /// Returns a boolean as the API server reads it: absent, `0` and `false` are false, everything else is true.
    ///
    /// # Errors
    /// 400 if it occurs twice with different values.
    pub fn flag(&self, name: &str) -> Result<bool, Status> {
        let value = self.single(name)?;
        Ok(value.is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false")))
    }

    /// Returns the query with one more parameter.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.pairs.push((name.into(), value.into()));
        self
    }

    /// Returns the query without these parameters.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        let others = self.pairs.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        Self { pairs: others.cloned().collect() }
    }
}

/// The canonical spelling: everything but letters, digits and `-._~` is encoded.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, value)) in self.pairs.iter().enumerate() {
            if n > 0 {
                f.write_str("&")?;
            }
            encode(f, name)?;
            f.write_str("=")?;
            encode(f, value)?;
        }
        Ok(())
    }
}

fn encode(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                write!(f, "{}", byte as char)?
            }
            other => write!(f, "%{other:02X}")?,
        }
    }
    Ok(())
}

fn decode(text: &str) -> Result<String, Status> {
    let broken = || Status::bad_request("the query has an invalid escape");
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| (byte as char).to_digit(16));
                let (high, low) = (digit().ok_or_else(broken)?, digit().ok_or_else(broken)?);
                (high * 16 + low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(decoded).map_err(|_| broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Query {
        Query::parse(text).unwrap()
    }

    #[test]
    fn forwarded_query_equals_parsed_query() {
        for (text, spelled) in [
            ("", ""),
            ("watch=1&limit=5", "watch=1&limit=5"),
            ("w%61tch=1", "watch=1"),
            ("watch", "watch="),
            ("&&a=b&", "a=b"),
            ("labelSelector=a+in+(b%2Cc)", "labelSelector=a%20in%20%28b%2Cc%29"),
            ("a=b=c", "a=b%3Dc"),
            ("a=%26b%3Dc", "a=%26b%3Dc"),
        ] {
            assert_eq!(parse(text).to_string(), spelled, "{text}");
            assert_eq!(parse(spelled), parse(text), "{text}");
        }
    }

    #[test]
    fn rejects_ambiguous_queries() {
        for text in
            ["a=%", "a=%zz", "a=%f", "%ff=1", "a;b", "watch=1;limit=2", &"a".repeat(MAX_QUERY_BYTES + 1)]
        {
            assert_eq!(Query::parse(text).unwrap_err().code, 400, "{text}");
        }
        assert_eq!(parse("watch=0&watch=1").flag("watch").unwrap_err().code, 400);
        assert!(parse("watch=1&watch=1").flag("watch").unwrap());
    }

    #[test]
    fn parses_flags_as_api_server_does() {
        for (text, set) in
            [("", false), ("watch=0", false), ("watch=False", false), ("watch", true), ("watch=no", true)]
        {
            assert_eq!(parse(text).flag("watch"), Ok(set), "{text}");
        }
    }
}
