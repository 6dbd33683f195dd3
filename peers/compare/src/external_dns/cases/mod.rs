//! The cases: what is done to a cluster or to a DNS server, and what is measured.

mod cluster;
mod load;
mod server;
mod zone;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::outcome::Outcome;
use super::world::{Setting, World};

type Play = for<'a> fn(&'a mut World) -> BoxFuture<'a, anyhow::Result<Outcome>>;

/// A case. Its number is that of the notifier's catalogue of failure cases.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) id: &'static str,
    pub(super) row: &'static str,
    pub(super) title: &'static str,
    pub(super) setting: Setting,
    /// It measures time in hundredths of a second: nothing else may run.
    pub(super) alone: bool,
    pub(super) play: Play,
}

const USUAL: Setting = Setting { zone: "", allowed: "", plain_lists: false };
const PLAIN: Setting = Setting { plain_lists: true, ..USUAL };
const FOREIGN: Setting = Setting { zone: "mail IN A 192.0.2.1", ..USUAL };
const POLICY: Setting = Setting {
    allowed: "update-policy { deny skopos name bad.apps.example.test; grant skopos zonesub ANY; }; \
              allow-transfer { key skopos; 127.0.0.3; };",
    ..USUAL
};

macro_rules! case {
    ($id:literal, $row:literal, $setting:expr, $play:path, $title:literal) => {
        Case {
            id: $id,
            row: $row,
            title: $title,
            setting: $setting,
            alone: false,
            play: |world| $play(world).boxed(),
        }
    };
}

/// Returns all cases, in the order of the page.
pub(super) fn all() -> Vec<Case> {
    let mut load =
        case!("load", "–", USUAL, load::changes, "1,000 names, 10 addresses a second change, for 30 s");
    load.alone = true;
    vec![
        case!(
            "restart",
            "1",
            USUAL,
            cluster::restart,
            "API server gone for 20 s; an address changes and a Service is created meanwhile"
        ),
        case!(
            "empty",
            "4",
            PLAIN,
            cluster::empty_list,
            "API server is back with an empty list of Services for 90 s (30 names)"
        ),
        case!(
            "empty-start",
            "4",
            PLAIN,
            cluster::empty_list_at_start,
            "the notifier starts while it does (30 names)"
        ),
        case!("many", "7", USUAL, cluster::many_deleted, "20 of 50 Services deleted on purpose"),
        case!("killed", "9", USUAL, server::killed, "DNS server killed, back after 65 s"),
        case!("frozen", "10", USUAL, server::frozen, "DNS server frozen for 20 s"),
        case!("key", "11", USUAL, server::wrong_key, "wrong secret of the key, for 60 s, then the right one"),
        case!(
            "transfer",
            "13",
            FOREIGN,
            server::transfer_refused,
            "transfers refused for 60 s, then allowed"
        ),
        case!("refused", "14", POLICY, server::one_refused, "one of 11 new names is refused by the server"),
        case!("type", "15", USUAL, zone::type_change, "address → CNAME → address"),
        case!("ttl", "16", USUAL, zone::ttl, "another TTL"),
        case!("addresses", "17", USUAL, zone::many_addresses, "150 addresses behind one of 11 new names"),
        case!(
            "foreign",
            "18",
            FOREIGN,
            zone::foreign,
            "a Service asks for the name of another program's record"
        ),
        case!("drift", "19", USUAL, zone::drift, "records deleted and edited by hand"),
        case!(
            "mark",
            "19",
            USUAL,
            zone::mark_lost,
            "the mark beside a name deleted by hand, then its address changes"
        ),
        case!("two", "20", USUAL, cluster::two_claims, "two Services ask for one name; the first is deleted"),
        case!("rename", "21", USUAL, cluster::rename, "a Service asks for another name"),
        case!(
            "again",
            "22",
            USUAL,
            cluster::again,
            "Service deleted and created again, with another address"
        ),
        case!(
            "down",
            "23",
            USUAL,
            cluster::while_down,
            "two Services deleted and one changed while the notifier was down"
        ),
        load,
    ]
}
