//! Counts of the requests of clients.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::gateway::audit::{Answer, Observer};

/// Counters of answers. Their series are bounded, because routes, methods and classes of codes are few.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    answered: Family<Labels, Counter>,
    took: Family<RouteLabel, Histogram, fn() -> Histogram>,
    answers: Family<AgeLabels, Counter>,
    /// `cache.maxAge`.
    max_age: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    route: &'static str,
    method: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgeLabels {
    route: &'static str,
    age: &'static str,
}

/// Methods with a series of their own.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

impl Requests {
    pub(crate) fn register(registry: &mut Registry, max_age: Duration) -> Self {
        let times: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0005, 2.0, 16));
        let requests = Self {
            answered: Family::default(),
            took: Family::new_with_constructor(times),
            answers: Family::default(),
            max_age,
        };
        registry.register(
            "requests",
            "Requests of clients by the code of their answer",
            requests.answered.clone(),
        );
        let help = "Time until an answer began, in seconds";
        registry.register("request_seconds", help, requests.took.clone());
        registry.register(
            "answers",
            "Answers with objects of clusters by their age: young is at most cache.maxAge",
            requests.answers.clone(),
        );
        requests
    }

    /// Returns how an age compares with `cache.maxAge`.
    fn judge(&self, age: Option<Duration>) -> &'static str {
        match age {
            Some(age) if age <= self.max_age => "young",
            Some(_) => "old",
            None => "unknown",
        }
    }
}

impl Observer for Requests {
    fn answered(&self, answer: &Answer<'_>) {
        let Answer { route, method, code, took, has_objects, age } = *answer;
        let method = METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("other");
        self.answered.get_or_create(&Labels { route, method, code: code.as_u16() }).inc();
        self.took.get_or_create(&RouteLabel { route }).observe(took.as_secs_f64());
        if has_objects {
            self.answers.get_or_create(&AgeLabels { route, age: self.judge(age) }).inc();
        }
    }
}
