use std::time::Duration;

use skopos_wire::ResourceVersion;

/// How a [`Machine`](super::Machine) behaves. The defaults are the bounds that the crate's documentation promises.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// Whether the sink is given objects, or changes only.
    pub content: Content,
    /// How to get the whole content.
    pub initial: InitialList,
    /// Objects per page of a list; 500 as in client-go and kubectl. `None`: everything in one answer.
    pub page_size: Option<u32>,
    /// Objects of one whole list, streamed or of all its pages together; objects that come twice count twice. 2,000,000.
    /// A list beyond it is given up where it passes the cap, and is asked for again later: nothing of it is kept.
    pub max_list_objects: usize,
    /// Bytes of JSON of the objects of one whole list, counted as `max_list_objects` is and before any transform. 8 GiB.
    pub max_list_bytes: u64,
    /// Begin with content that is already in the sink (a checkpoint) instead of a list. The server accepts its RV also if its
    /// history was rolled back and has passed that RV again: whether the content is of the present history has to be looked after
    /// by who has it (`skopos` compares it with a list of metadata).
    pub resume: Option<Resume>,
    /// How long a streamed list may bring nothing before it is taken for one that never ends (kubernetes#140890), and
    /// an ordinary list is made instead. 10 s: kube-apiserver sends the end at most 3 s after the answer has begun, and
    /// the default deadline of a first sync is 30 s, into which the fallback has to fit.
    pub initial_events_patience: Duration,
    /// `timeoutSeconds` of a watch is drawn from this range. 5 to 10 minutes as in client-go: permissions are checked
    /// when a watch starts, and watches move to other servers behind a load balancer.
    pub watch_timeout: (Duration, Duration),
    /// How much longer than its `timeoutSeconds` a stream may stand before it is ended from here. 30 s.
    pub watch_overtime: Duration,
    /// How long a streamed list may stay without response headers. 25 s: for the transport it is a watch, which has 90 s,
    /// and whoever waits for a first sync wants to know within its default deadline of 30 s why there is none.
    pub stream_patience: Duration,
    /// How long a list may bring nothing before it is given up. 45 s; the transport's own deadlines are shorter.
    pub list_patience: Duration,
    /// How long a watch may stay without response headers. 95 s: some proxies hold them back until the first event, and
    /// a bookmark comes about every 60 s.
    pub watch_patience: Duration,
    /// How long the stream may take to deliver what a probe has seen, before a second look is taken. 15 s.
    pub probe_grace: Duration,
    /// How long a stream may say nothing at all, in the absence of probes, before a second look is taken. 90 s: a
    /// kube-apiserver sends a bookmark about every 60 s.
    pub quiet_limit: Duration,
    /// `timeoutSeconds` of a second look. 3 s: a kube-apiserver sends a bookmark 2 s before the end of a watch.
    pub verify_timeout: Duration,
    /// How long doubt may last (second looks that showed nothing) before everything is listed again. 90 s, doubled
    /// after each such list, up to 64 times.
    pub doubt_limit: Duration,
    /// The first delay after a failure; it doubles with each failure in a row, and up to 30 % are added at random. 1 s.
    pub backoff_min: Duration,
    /// The longest delay after a failure, before the random part. 30 s.
    pub backoff_max: Duration,
    /// The longest `Retry-After` that is believed. 10 min.
    pub retry_after_max: Duration,
}

/// How the whole content is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitialList {
    /// A streamed list (WatchList: Kubernetes 1.34 and later, by default), and ordinary pages once the server has shown
    /// that it has none. This is remembered as long as the machine lives; beyond that by who is told of
    /// it ([`Sink::streams_no_lists`](crate::Sink::streams_no_lists)).
    #[default]
    Streamed,
    /// Ordinary lists.
    Paged,
}

/// What the sink is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// All objects, then their changes.
    #[default]
    Objects,
    /// Changes only: where a list is due, the RV to go on from is read with a list of one object, which is not staged.
    Changes,
}

/// Content that is already in the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The RV that the content belongs to.
    pub resource_version: ResourceVersion,
    /// Its epoch.
    pub epoch: u64,
}

impl Default for MachineOptions {
    fn default() -> Self {
        MachineOptions {
            content: Content::default(),
            initial: InitialList::default(),
            page_size: Some(500),
            max_list_objects: 2_000_000,
            max_list_bytes: 8 << 30,
            resume: None,
            initial_events_patience: Duration::from_secs(10),
            watch_timeout: (Duration::from_secs(300), Duration::from_secs(600)),
            watch_overtime: Duration::from_secs(30),
            stream_patience: Duration::from_secs(25),
            list_patience: Duration::from_secs(45),
            watch_patience: Duration::from_secs(95),
            probe_grace: Duration::from_secs(15),
            quiet_limit: Duration::from_secs(90),
            verify_timeout: Duration::from_secs(3),
            doubt_limit: Duration::from_secs(90),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            retry_after_max: Duration::from_secs(600),
        }
    }
}
