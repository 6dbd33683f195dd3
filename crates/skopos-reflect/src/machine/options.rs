use std::time::Duration;

use skopos_wire::ResourceVersion;

/// Options of a [`Machine`](super::Machine). The defaults are the limits that the crate's documentation promises.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// The content for the sink: objects, or changes only.
    pub content: Content,
    /// The way to get the whole content.
    pub initial: InitialList,
    /// Objects per page of a list; 500 as in client-go and kubectl. `None`: everything in one response.
    pub page_size: Option<u32>,
    /// The maximum number of objects in one whole list, streamed or of all its pages together; objects that come twice count
    /// twice. 2,000,000. A list is abandoned when it exceeds the limit, discarded completely, and requested again later.
    pub max_list_objects: usize,
    /// The maximum JSON bytes of the objects in one whole list, counted like `max_list_objects` and before any transform. 8 GiB.
    pub max_list_bytes: u64,
    /// The content that is already in the sink (a checkpoint), to begin with instead of a list. The server accepts its
    /// RV even if its history was rolled back and has passed that RV again. The owner of the content must check that it
    /// is of the current history (`skopos` compares it with a list of metadata).
    pub resume: Option<Resume>,
    /// The maximum silence of a streamed list. After it, the list is taken as one that never ends (kubernetes#140890),
    /// and an ordinary list is made instead. 10 s: kube-apiserver sends the end at most 3 s after the response has
    /// begun, and the fallback has to fit into the default deadline of a first sync, 30 s.
    pub initial_events_timeout: Duration,
    /// The range of a watch's `timeoutSeconds`, drawn at random. 5 to 10 minutes as in client-go: permissions are
    /// checked when a watch starts, and watches move to other servers behind a load balancer.
    pub watch_timeout: (Duration, Duration),
    /// The time that a stream may stay open beyond its `timeoutSeconds` before the client ends it. 30 s.
    pub watch_overtime: Duration,
    /// The timeout of a streamed list's response headers. 25 s: for the transport it is a watch, which has 90 s. But a caller
    /// that waits for a first sync wants to know the reason within its default deadline of 30 s.
    pub stream_headers_timeout: Duration,
    /// The maximum silence of a list before it is given up. 45 s; the transport's own deadlines are shorter.
    pub list_timeout: Duration,
    /// The timeout of a watch's response headers. 95 s: some proxies hold them back until the first event, and a
    /// bookmark comes about every 60 s.
    pub watch_headers_timeout: Duration,
    /// The time that the stream has to deliver changes that a probe has seen, before a verification watch. 15 s.
    pub probe_grace: Duration,
    /// The maximum silence of a stream before a verification watch, without probes. 90 s: a kube-apiserver sends a bookmark
    /// about every 60 s.
    pub quiet_limit: Duration,
    /// The `timeoutSeconds` of a verification watch. 3 s: a kube-apiserver sends a bookmark 2 s before the end of a watch.
    pub verify_timeout: Duration,
    /// The maximum duration of a suspected stall (verification watches that showed nothing) before everything is listed
    /// again. 90 s, doubled after each such list, up to 64 times.
    pub stall_limit: Duration,
    /// The first delay after a failure. It doubles with each consecutive failure, and up to 30 % are added at random. 1 s.
    pub backoff_min: Duration,
    /// The maximum delay after a failure, before the random part. 30 s.
    pub backoff_max: Duration,
    /// The maximum `Retry-After` that the client accepts. 10 min.
    pub retry_after_max: Duration,
}

/// The request for the whole content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitialList {
    /// A streamed list (WatchList: Kubernetes 1.34 and later, by default), and ordinary pages once the server has shown
    /// that it does not support it. The machine remembers this; the sink is notified and may remember it longer
    /// ([`Sink::watch_list_unsupported`](crate::Sink::watch_list_unsupported)).
    #[default]
    Streamed,
    /// Ordinary lists.
    Paged,
}

/// The content passed to the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// All objects, then their changes.
    #[default]
    Objects,
    /// Changes only. Where a list is due, the RV to resume from is read with a list of one object, which is not staged.
    Changes,
}

/// Content that is already in the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The RV of the content.
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
            initial_events_timeout: Duration::from_secs(10),
            watch_timeout: (Duration::from_secs(300), Duration::from_secs(600)),
            watch_overtime: Duration::from_secs(30),
            stream_headers_timeout: Duration::from_secs(25),
            list_timeout: Duration::from_secs(45),
            watch_headers_timeout: Duration::from_secs(95),
            probe_grace: Duration::from_secs(15),
            quiet_limit: Duration::from_secs(90),
            verify_timeout: Duration::from_secs(3),
            stall_limit: Duration::from_secs(90),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            retry_after_max: Duration::from_secs(600),
        }
    }
}
