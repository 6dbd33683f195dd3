//! Notices about the view: when it is stale, why, and when it is current again.
use std::time::Duration;

use skopos_console::human;

use crate::output::Notice;
use crate::style::{Style, Tone};

/// State of the view at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewState {
    /// It follows the server
    Live,
    /// It may be behind, and why
    Stale { reason: String },
}

/// Turns the view's states over time into the few notices that a user needs.
///
/// An interruption shorter than the limit is not reported: servers end every watch from time to time, and the next one
/// resumes at the same resourceVersion.
#[derive(Debug)]
pub(crate) struct ViewMonitor {
    limit: Duration,
    since: Option<Duration>,
    told: Option<String>,
}

impl ViewMonitor {
    /// Makes a monitor of a view that is live.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, since: None, told: None }
    }

    /// Takes the view's state at `now` (counted from any origin) and how the last trouble healed; returns the notice to print.
    pub(crate) fn observe(&mut self, now: Duration, state: &ViewState, healed: &str) -> Option<Notice> {
        match state {
            ViewState::Live => {
                let since = self.since.take()?;
                self.told.take()?;
                Some(Notice::Live { after: now.saturating_sub(since), how: healed.into() })
            }
            ViewState::Stale { reason } => {
                let since = *self.since.get_or_insert(now);
                let news = self.told.as_ref() != Some(reason);
                if !news || now.saturating_sub(since) < self.limit {
                    return None;
                }
                self.told = Some(reason.clone());
                Some(Notice::Stale { reason: reason.clone() })
            }
        }
    }
}

/// Returns a notice as a line for people, without the newline.
pub(crate) fn notice_line(notice: &Notice, style: Style) -> String {
    const LONGEST: usize = 300;
    match notice {
        Notice::Synced { objects: 0, scope, .. } => {
            let all = if scope.contains(" in namespace ") { " (use -A for all)" } else { "" };
            style.paint(Tone::Faint, format!("# no {} yet{all}; watching", human::one_line(scope, LONGEST)))
        }
        Notice::Synced { objects, after, .. } => style.paint(
            Tone::Faint,
            format!("# synced: {} after {}", human::count(*objects, "object"), human::seconds(*after)),
        ),
        Notice::Stale { reason } => {
            style.paint(Tone::Bad, format!("# stale: {}", human::one_line(reason, LONGEST)))
        }
        Notice::Live { after, how } if how.is_empty() => {
            style.paint(Tone::Good, format!("# live again after {}", human::seconds(*after)))
        }
        Notice::Live { after, how } => style.paint(
            Tone::Good,
            format!("# live again after {}: {}", human::seconds(*after), human::one_line(how, LONGEST)),
        ),
        Notice::Note(text) => style.paint(Tone::Notice, format!("# {}", human::one_line(text, LONGEST))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn stale(reason: &str) -> ViewState {
        ViewState::Stale { reason: reason.into() }
    }

    #[test]
    fn reports_trouble_and_recovery_once() {
        let mut monitor = ViewMonitor::new(at(500));
        assert_eq!(monitor.observe(at(0), &ViewState::Live, ""), None);
        assert_eq!(monitor.observe(at(1000), &stale("refused"), ""), None, "it may be over at once");
        assert_eq!(
            monitor.observe(at(1600), &stale("refused"), ""),
            Some(Notice::Stale { reason: "refused".into() })
        );
        assert_eq!(monitor.observe(at(2000), &stale("refused"), ""), None);
        assert_eq!(
            monitor.observe(at(2100), &stale("HTTP 503"), ""),
            Some(Notice::Stale { reason: "HTTP 503".into() })
        );
        let live = Notice::Live { after: at(2000), how: "watch resumed".into() };
        assert_eq!(monitor.observe(at(3000), &ViewState::Live, "watch resumed"), Some(live));
        assert_eq!(monitor.observe(at(3100), &ViewState::Live, ""), None);
    }

    #[test]
    fn short_interruption_is_not_reported() {
        let mut monitor = ViewMonitor::new(at(500));
        monitor.observe(at(0), &stale("closed"), "");
        assert_eq!(monitor.observe(at(300), &ViewState::Live, ""), None);
        assert_eq!(monitor.observe(at(900), &stale("closed"), ""), None, "limit starts again");
    }

    #[test]
    fn lines_for_people() {
        let line = |notice| notice_line(&notice, Style::plain());
        let synced = |objects, scope: &str| Notice::Synced { objects, after: at(40), scope: scope.into() };
        assert_eq!(line(synced(1, "pods")), "# synced: 1 object after 40ms");
        assert_eq!(
            line(synced(0, "pods in namespace default")),
            "# no pods in namespace default yet (use -A for all); watching"
        );
        assert_eq!(line(synced(0, "nodes")), "# no nodes yet; watching");
        assert_eq!(line(Notice::Stale { reason: "a\nb".into() }), "# stale: a b");
        assert_eq!(line(Notice::Live { after: at(1500), how: String::new() }), "# live again after 1.5s");
    }
}
