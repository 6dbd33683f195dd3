//! Lists: consistent, in pages, and never applied when their RV is lower than ours.

use std::sync::Arc;
use std::time::Duration;

use skopos_wire::{ObjectKey, RawObject, ResourceVersion};

use super::*;
use crate::Commit;

/// A list that was requested or is being received.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) id: RequestId,
    pub(super) plan: ListPlan,
    /// True if `begin_replace` was called.
    pub(super) begun: bool,
    /// The deadline for the next progress.
    pub(super) deadline: Time,
    pub(super) progress: ListProgress,
    limit: Option<u32>,
    /// The continue token of the current page; `None` on the first.
    token: Option<Arc<str>>,
    /// The RV of the first page, which all others must carry too.
    resource_version: Option<ResourceVersion>,
    /// The number of retries of the page.
    page_failures: u32,
    /// The delays between these retries.
    pub(super) backoff: Backoff,
    /// The time at which the previous page had come.
    previous_page_at: Time,
    /// The number of objects on the current page.
    on_page: usize,
    /// The number of pages so far that brought too little.
    sparse_pages: u32,
}

/// A planned list.
#[derive(Clone, Debug)]
pub(super) struct ListPlan {
    pub(super) cause: ReplaceCause,
    pub(super) avoid: Option<RequestId>,
    /// True for ordinary pages, at least this time.
    pub(super) paged: bool,
}

/// The contents of a list besides the staged objects.
#[derive(Debug)]
pub(super) struct ListProgress {
    /// The time at which the list was requested: it has everything that the server had then.
    pub(super) asked_at: Time,
    /// The keys of objects that cannot be decoded.
    pub(super) unreadable: Vec<ObjectKey>,
    /// The number of objects that can be neither decoded nor named.
    pub(super) nameless: usize,
    /// The number of objects received. Those that came twice count twice: both are kept until the list is complete.
    objects: usize,
    /// The size of their JSON in bytes.
    bytes: u64,
}

/// The maximum retries of a page before the list is restarted: staged objects are not kept without end.
const MAX_PAGE_RETRIES: u32 = 4;
/// The maximum time between a page and the retry of the next one. A later page may be of another history: a server
/// restored from a backup may meanwhile have reached the same RV again, which takes longer than this.
const MAX_PAGE_GAP: Duration = Duration::from_secs(30);
/// The number of consecutive restarts for that reason after which the list is requested in one response.
const MAX_RESTARTED_LISTS: u32 = 2;
/// The maximum number of a list's pages with less than a hundredth of the requested objects. An empty page with a token is legal.
const MAX_SPARSE_PAGES: u32 = 20;

impl ListPlan {
    pub(super) fn new(cause: ReplaceCause) -> Self {
        ListPlan { cause, avoid: None, paged: false }
    }

    /// Makes a plan for a list after an unreadable stream: another stream would not help.
    pub(super) fn undecodable() -> Self {
        ListPlan { paged: true, ..ListPlan::new(ReplaceCause::Undecodable) }
    }
}

impl Listing {
    /// Returns whether a page that comes now certainly belongs to the previous ones.
    fn is_continuous(&self, now: Time) -> bool {
        now.since(self.previous_page_at) <= MAX_PAGE_GAP
    }

    /// Returns the reason why the list after a page with this token would not end, if so. Pages that bring objects may
    /// be any number.
    fn endless_reason(&mut self, token: &str) -> Option<String> {
        if self.token.as_deref() == Some(token) {
            return Some("the list does not end: a page continues with itself".to_owned());
        }
        let asked = self.limit.map_or(500, |limit| limit as usize);
        self.sparse_pages += u32::from(self.on_page < (asked / 100).max(1));
        (self.sparse_pages > MAX_SPARSE_PAGES).then(|| {
            format!("the list does not end: {} of its pages bring next to nothing", self.sparse_pages)
        })
    }
}

impl ListProgress {
    pub(super) fn new(asked_at: Time) -> Self {
        ListProgress { asked_at, unreadable: Vec::new(), nameless: 0, objects: 0, bytes: 0 }
    }

    /// Counts one more object of this many bytes of JSON, and fails beyond the limits.
    pub(super) fn take(&mut self, bytes: usize, options: &MachineOptions) -> Result<(), Verdict> {
        self.objects = self.objects.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let (cap, most) = match options {
            MachineOptions { max_list_objects, .. } if self.objects > *max_list_objects => {
                ("max_list_objects", format!("{max_list_objects} objects"))
            }
            MachineOptions { max_list_bytes, .. } if self.bytes > *max_list_bytes => {
                ("max_list_bytes", format!("{max_list_bytes} bytes"))
            }
            _ => return Ok(()),
        };
        let reason = format!(
            "the list has more than {most}, which is the most that is accepted: if so much is really there, raise \
             MachineOptions::{cap} or narrow the selectors"
        );
        Err(Verdict::new(Meaning::TooLarge, reason))
    }

    /// Records an object that cannot be read.
    pub(super) fn unreadable(&mut self, key: Option<ObjectKey>, sink: &mut dyn Sink) {
        match key {
            Some(key) => {
                sink.stage_unreadable(&key);
                self.unreadable.push(key);
            }
            None => self.nameless += 1,
        }
    }
}

/// The age of a watch above which a refusal is not about its start.
const JUST_OPENED_AGE: Duration = Duration::from_secs(2);
/// The time for which a healthy server remembers its lists. A kube-apiserver compacts every 5 minutes.
const MIN_SERVER_HISTORY: Duration = Duration::from_secs(60);

impl Machine {
    pub(super) fn on_relist(&mut self, sink: &mut dyn Sink) {
        // A list in progress was begun for older suspicions, but ends with content that is newer than they are.
        let listing = matches!(
            self.state,
            State::Listing(_)
                | State::Streaming(_)
                | State::Waiting { next: Next::List(_) | Next::Page(_), .. }
        );
        if listing {
            return;
        }
        self.relist_when_affordable(ReplaceCause::Requested, sink);
    }

    /// Cancels the current requests and makes a list, as soon as the budgets allow one.
    pub(super) fn relist(&mut self, plan: ListPlan, reason: Reason, sink: &mut dyn Sink) {
        let is_renewal = self.is_renewal(&plan);
        // The server's `Retry-After` holds for every request.
        let (not_before, condition) = match &self.state {
            State::Waiting { until, .. } if self.reflector.condition == Condition::Throttled => {
                (*until, Condition::Throttled)
            }
            _ if is_renewal => (self.now, Condition::Connecting),
            _ => (self.now, Condition::Retrying),
        };
        self.cancel_all(sink);
        self.deferred_relist = None;
        self.stats.relists += 1;
        let spread = self.jitter(Duration::from_millis(500));
        let until = self.lists.available_at(self.now, 1).max(not_before) + spread;
        self.reflector.reason = (!is_renewal).then_some(reason);
        self.set_condition(condition);
        self.wait(until, Next::List(plan));
    }

    /// Returns whether a list replaces a watch that was only to be reopened after its normal end. A server that sends
    /// no bookmarks forgets the RV of watches on a quiet resource, and nothing is wrong with either.
    fn is_renewal(&self, plan: &ListPlan) -> bool {
        let State::Watching(watching) = &self.state else { return false };
        let just_opened = watching.opened_at.is_none_or(|opened| self.now < opened + JUST_OPENED_AGE);
        let long_ago = self.stall.listed_at() + MIN_SERVER_HISTORY <= self.now;
        plan.cause == ReplaceCause::Expired
            && self.reflector.attempts == 0
            && matches!(self.reflector.condition, Condition::Connecting | Condition::Watching)
            && just_opened
            && long_ago
            && !watching.progressed
    }

    /// Sets the condition of a reflector that is receiving a list.
    pub(super) fn set_listing(&mut self, cause: ReplaceCause) {
        if self.reflector.condition != Condition::Connecting || cause != ReplaceCause::Expired {
            self.set_condition(Condition::Listing);
        }
    }

    pub(super) fn start_list(&mut self, plan: ListPlan) {
        // A retry after a failure must keep the bound on lists too: the failure may have come in the body.
        let streamed = self.watch_list_supported && !plan.paged;
        let until = self.list_affordable_at(streamed);
        if until > self.now {
            return self.wait_for_budget(until, Next::List(plan));
        }
        self.requests.spend(self.now);
        self.lists.spend(self.now);
        if streamed {
            return self.start_stream(plan);
        }
        self.request_page(Listing {
            id: RequestId(0),
            begun: false,
            deadline: self.now,
            progress: ListProgress::new(self.now),
            limit: match self.options.content {
                Content::Objects => self.options.page_size.filter(|_| self.pages_work),
                Content::Changes => Some(1),
            },
            token: None,
            resource_version: None,
            page_failures: 0,
            backoff: Backoff::default(),
            previous_page_at: self.now,
            on_page: 0,
            sparse_pages: 0,
            plan,
        });
    }

    /// Returns the time at which a list may be requested: now, or later.
    pub(super) fn list_affordable_at(&self, streamed: bool) -> Time {
        // A list has no value without the watch that follows it.
        let requests = if streamed { 1 } else { 2 };
        self.lists.available_at(self.now, 1).max(self.affordable_at(requests))
    }

    pub(super) fn request_page(&mut self, mut listing: Listing) {
        listing.id = self.new_id();
        listing.deadline = self.now + self.options.list_timeout;
        listing.on_page = 0;
        self.stats.list_requests += 1;
        self.actions.push_back(Action::List(ListRequest {
            id: listing.id,
            limit: listing.limit,
            continue_token: listing.token.clone(),
            avoid: listing.plan.avoid,
            wait_for_connection: self.outage,
        }));
        self.state = State::Listing(listing);
    }

    pub(super) fn on_list_opened(&mut self, sink: &mut dyn Sink) {
        let State::Listing(listing) = &mut self.state else { return };
        if listing.page_failures > 0 && !listing.is_continuous(self.now) {
            self.actions.push_back(Action::Cancel { id: listing.id });
            let verdict = Verdict::new(
                Meaning::Lost,
                "the next page comes so late that it may be of another history: listing again",
            );
            return self.on_list_failed(verdict, sink);
        }
        listing.deadline = self.now + self.options.list_timeout;
        let begins = !std::mem::replace(&mut listing.begun, true);
        if begins {
            sink.begin_replace();
        }
        let cause = listing.plan.cause;
        self.on_success();
        self.set_listing(cause);
    }

    pub(super) fn on_items(&mut self, items: Vec<Result<RawObject, BrokenItem>>, sink: &mut dyn Sink) {
        let State::Listing(listing) = &mut self.state else { return };
        if !listing.begun {
            return;
        }
        listing.deadline = self.now + self.options.list_timeout;
        if self.options.content == Content::Changes {
            return;
        }
        for item in items {
            listing.on_page += 1;
            let bytes = item.as_ref().map_or(0, |object| object.content_len());
            if let Err(verdict) = listing.progress.take(bytes, &self.options) {
                self.actions.push_back(Action::Cancel { id: listing.id });
                return self.on_list_failed(verdict, sink);
            }
            match item {
                Ok(object) => sink.stage(object),
                Err(broken) => {
                    self.stats.undecodable += 1;
                    listing.progress.unreadable(broken.key, sink);
                }
            }
        }
    }

    pub(super) fn on_list_end(
        &mut self,
        resource_version: Option<ResourceVersion>,
        continue_token: Option<Arc<str>>,
        sink: &mut dyn Sink,
    ) {
        let State::Listing(listing) = &mut self.state else { return };
        if !listing.begun {
            return;
        }
        let Some(resource_version) = resource_version else {
            let verdict =
                Verdict::new(Meaning::Malformed, "the list has no resourceVersion, so it cannot be followed");
            return self.on_list_failed(verdict, sink);
        };
        let first = listing.resource_version.get_or_insert_with(|| resource_version.clone());
        if *first != resource_version {
            // Not one snapshot: the server reads each page at another RV. Only a list in one response is consistent.
            let verdict =
                Verdict::new(Meaning::Expired, "the pages of the list belong to different resourceVersions");
            return self.on_list_failed(verdict, sink);
        }
        let whole = self.options.content == Content::Objects;
        let token = continue_token.filter(|token| whole && !token.is_empty());
        if let Some(token) = &token
            && let Some(reason) = listing.endless_reason(token)
        {
            return self.on_list_failed(Verdict::new(Meaning::Endless, reason), sink);
        }
        let state = std::mem::replace(
            &mut self.state,
            State::Waiting { until: self.now, next: Next::Watch { avoid: None, retire_avoided: false } },
        );
        let State::Listing(mut listing) = state else { return };
        match token {
            Some(token) => {
                listing.token = Some(token);
                listing.page_failures = 0;
                listing.previous_page_at = self.now;
                listing.backoff.reset();
                self.request_page(listing);
            }
            None => {
                let id = listing.id;
                if self.commit(listing.plan, listing.progress, resource_version, id, sink) {
                    self.start_watch(None, false);
                }
            }
        }
    }

    pub(super) fn on_list_failed(&mut self, verdict: Verdict, sink: &mut dyn Sink) {
        let state = std::mem::replace(
            &mut self.state,
            State::Waiting { until: self.now, next: Next::Watch { avoid: None, retire_avoided: false } },
        );
        let State::Listing(mut listing) = state else { return };
        self.on_list_refused(listing.begun, &verdict);
        let later_page = listing.token.is_some();
        let too_late = later_page && !listing.is_continuous(self.now);
        let passing = !matches!(
            verdict.meaning,
            Meaning::Expired
                | Meaning::TooLargeResourceVersion
                | Meaning::Unauthorized
                | Meaning::Forbidden
                | Meaning::NotServed
                | Meaning::Rejected
                | Meaning::Endless
                | Meaning::TooLarge
        );
        if later_page && passing && listing.page_failures < MAX_PAGE_RETRIES && !too_late {
            // All pages are of one snapshot, so a page can be requested again; objects that come twice are the same.
            listing.page_failures += 1;
            listing.plan.avoid = Some(listing.id);
            return self.fail(verdict, Next::Page(listing), sink);
        }
        if too_late {
            self.on_restarted_list();
        }
        if later_page && verdict.meaning == Meaning::Expired {
            // The list takes longer than the server keeps its history. Pages would end the same way each time.
            self.pages_work = false;
        }
        if later_page && verdict.meaning == Meaning::TooLargeResourceVersion {
            // The server lags behind the one that sent the previous page, or its history was rolled back meanwhile and
            // the same RV will be another's. Only one response is certain to be of one history.
            self.pages_work = false;
        }
        if verdict.meaning == Meaning::Endless {
            // Something on the way applies the limit and ignores the token. Without a limit the list may be whole.
            self.pages_work = false;
        }
        if listing.begun {
            sink.abort_replace();
        }
        listing.plan.avoid = Some(listing.id);
        self.fail(verdict, Next::List(listing.plan), sink);
    }

    /// Retries a page, unless it is too late already.
    pub(super) fn retry_page(&mut self, listing: Listing, sink: &mut dyn Sink) {
        if listing.is_continuous(self.now) {
            return self.request_page(listing);
        }
        self.on_restarted_list();
        if listing.begun {
            sink.abort_replace();
        }
        self.start_list(listing.plan);
    }

    /// Counts a restarted list. If pages come too late each time, for example because the server delays them, no list
    /// in pages would ever be complete.
    fn on_restarted_list(&mut self) {
        self.restarted_lists += 1;
        if self.restarted_lists >= MAX_RESTARTED_LISTS {
            self.pages_work = false;
        }
    }

    /// Refunds the budget of a list that was refused before it began. It costs the server little, and counts as a request only.
    pub(super) fn on_list_refused(&mut self, begun: bool, verdict: &Verdict) {
        if !begun && !verdict.was_served() {
            self.lists.refund();
        }
    }

    /// Commits a complete list. Returns false if it was not applied, and another step was started.
    pub(super) fn commit(
        &mut self,
        mut plan: ListPlan,
        progress: ListProgress,
        resource_version: ResourceVersion,
        id: RequestId,
        sink: &mut dyn Sink,
    ) -> bool {
        let known = self.position.as_ref().map(Position::resource_version);
        let back = known.is_some_and(|known| resource_version < *known);
        if back && self.rollback_candidate.is_none() {
            self.on_regressed_list(plan, resource_version, id, sink);
            return false;
        }
        if back {
            plan.cause = ReplaceCause::Rollback;
            self.epoch += 1;
            self.fresh = None;
            self.stall.clear_probes();
            self.stats.rollbacks += 1;
        }
        self.rollback_candidate = None;
        self.restarted_lists = 0;
        self.stats.lists += 1;
        let missing = progress.unreadable.len() + progress.nameless;
        if missing > self.reflector.undecodable {
            self.report_undecodable(missing, sink);
        }
        sink.commit_replace(Commit {
            resource_version: resource_version.clone(),
            epoch: self.epoch,
            gap: self.position.is_some(),
            cause: plan.cause,
            asked_at: progress.asked_at,
            nameless: progress.nameless,
        });
        self.position = Some(Position::new(resource_version, self.now));
        self.undecodable.record_list(progress.unreadable, progress.nameless);
        self.reflector.undecodable = self.undecodable.count();
        self.link_changed = true;
        self.stall.record_list(plan.cause, self.now);
        self.record_proof(progress.asked_at, sink);
        self.on_moved(sink);
        true
    }

    /// Handles the first consistent read whose RV is lower than one seen before: this server is wrong, or history was
    /// rolled back. Another list on another connection decides.
    fn on_regressed_list(
        &mut self,
        mut plan: ListPlan,
        resource_version: ResourceVersion,
        id: RequestId,
        sink: &mut dyn Sink,
    ) {
        self.stats.regressed_lists += 1;
        sink.abort_replace();
        let seen = self.resource_version().map(ToString::to_string).unwrap_or_default();
        let reason =
            format!("a consistent list is of resourceVersion {resource_version}, but {seen} was seen before");
        self.rollback_candidate = Some(resource_version);
        plan.avoid = Some(id);
        self.fail(Verdict::new(Meaning::Lost, reason), Next::List(plan), sink);
    }
}
