//! Media types that a client accepts.

use http::{HeaderMap, header};

/// Returns the value of `Accept`, of all its lines.
pub(super) fn accept(headers: &HeaderMap) -> String {
    let lines: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    lines.join(",")
}

/// One of the media types that the client accepts.
#[derive(Debug, PartialEq)]
pub(super) struct MediaRange<'a> {
    pub(super) media: &'a str,
    pub(super) kind: Option<&'a str>,
    pub(super) group: Option<&'a str>,
    pub(super) version: Option<&'a str>,
    pub(super) stream: Option<&'a str>,
    /// Quality in thousandths.
    quality: u32,
}

/// Returns the clauses of `Accept`, best first.
pub(super) fn media_ranges(accept: &str) -> Vec<MediaRange<'_>> {
    let mut media_ranges: Vec<MediaRange<'_>> = accept
        .split(',')
        .map(|media_range| {
            let mut parts = media_range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let mut parsed =
                MediaRange { media, kind: None, group: None, version: None, stream: None, quality: 1000 };
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name {
                    "as" => parsed.kind = Some(value),
                    "g" => parsed.group = Some(value),
                    "v" => parsed.version = Some(value),
                    "stream" => parsed.stream = Some(value),
                    "q" => parsed.quality = value.parse::<f32>().map_or(0, |q| (q * 1000.0) as u32),
                    _ => {}
                }
            }
            parsed
        })
        .filter(|media_range| media_range.quality > 0)
        .collect();
    media_ranges.sort_by_key(|media_range| std::cmp::Reverse(media_range.quality));
    media_ranges
}
