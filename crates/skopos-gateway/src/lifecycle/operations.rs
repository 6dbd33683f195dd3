//! Operations that continue after the caller has gone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use skopos_vcluster::{
    CreateOptions, DeleteOptions, Error, Host, PauseOptions, Progress, ResumeOptions, Step,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::status_of;

/// The running operations and the last finished ones. Clones are handles to the same state.
#[derive(Clone, Default)]
pub(super) struct Operations {
    shared: Arc<OperationsInner>,
}

#[derive(Default)]
struct OperationsInner {
    known: Mutex<OperationTable>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct OperationTable {
    /// The running operations with their complete tasks, which may be large and contain secrets.
    running: HashMap<Target, (Arc<Operation>, Task)>,
    /// All visible operations, oldest first.
    all: VecDeque<Arc<Operation>>,
}

/// The target of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The task of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Task {
    Create(Box<CreateOptions>),
    Pause(PauseOptions),
    Resume,
    Delete(DeleteOptions),
}

/// The result of a request to start an operation.
pub(super) enum Started {
    /// The operation runs, perhaps started by another caller.
    Running(Arc<Operation>),
    /// Another operation runs on the target, or the same with other options (`same`).
    Busy { target: Target, verb: &'static str, same: bool },
    /// Too many operations are running.
    Full,
}

/// A running or finished operation.
pub(super) struct Operation {
    id: String,
    target: Target,
    verb: &'static str,
    began: Timestamp,
    state: Mutex<State>,
    done: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    steps: VecDeque<StepRecord>,
    finished: Option<Finished>,
}

/// A step, with its time.
#[derive(Clone, Serialize)]
struct StepRecord {
    at: Timestamp,
    text: String,
    #[serde(flatten)]
    step: Step,
}

#[derive(Clone)]
struct Finished {
    at: Timestamp,
    result: Result<Value, Value>,
}

/// The maximum number of running operations.
const MAX_RUNNING: usize = 100;

/// The maximum number of visible operations.
const MAX_OPERATIONS: usize = 1000;

/// The maximum number of steps kept of one operation, the last ones.
const MAX_STEPS: usize = 200;

impl Operations {
    /// Starts the task, unless it is running already.
    pub(super) fn start(&self, host: Host, target: Target, task: Task) -> Started {
        let mut known = self.shared.known.lock();
        if let Some((running, task_running)) = known.running.get(&target) {
            return match *task_running == task {
                true => Started::Running(running.clone()),
                false => Started::Busy { verb: running.verb, same: running.verb == task.verb(), target },
            };
        }
        if known.running.len() >= MAX_RUNNING || self.shared.stop.is_cancelled() {
            return Started::Full;
        }
        let operation = Arc::new(Operation::new(target.clone(), task.verb()));
        known.running.insert(target, (operation.clone(), task.clone()));
        known.all.push_back(operation.clone());
        while known.all.len() > MAX_OPERATIONS {
            known.all.pop_front();
        }
        let (shared, running) = (Arc::downgrade(&self.shared), operation.clone());
        let stop = self.shared.stop.clone();
        self.shared.tasks.spawn(async move {
            let result = stop.run_until_cancelled(task.run(&host, &running)).await;
            running.end(result.unwrap_or_else(|| Err(interrupted())));
            if let Some(shared) = shared.upgrade() {
                shared.known.lock().running.remove(&running.target);
            }
            running.done.send_replace(true);
        });
        Started::Running(operation)
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Operation>> {
        self.shared.known.lock().all.iter().find(|operation| operation.id == id).cloned()
    }

    pub(super) async fn shutdown(&self, limit: Duration) -> bool {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        tokio::time::timeout(limit, self.shared.tasks.wait()).await.is_ok()
    }
}

impl Drop for OperationsInner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Task {
    fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Pause(_) => "pause",
            Self::Resume => "resume",
            Self::Delete(_) => "delete",
        }
    }

    async fn run(self, host: &Host, operation: &Operation) -> Result<Value, Value> {
        let Target { name, namespace, .. } = &operation.target;
        let inside = Some(namespace.as_str());
        let done = match self {
            Self::Create(mut options) => {
                options.namespace = Some(namespace.clone());
                host.create(name, &options, operation).await.map(Some)
            }
            Self::Pause(options) => host.pause(name, inside, options, operation).await.map(Some),
            Self::Resume => {
                let options = ResumeOptions { wait: true, ..ResumeOptions::default() };
                host.resume(name, inside, options, operation).await.map(Some)
            }
            Self::Delete(options) => host.delete(name, inside, options, operation).await.map(|()| None),
        };
        done.map(|cluster| json!(cluster)).map_err(|error| failure(&error))
    }
}

impl Operation {
    fn new(target: Target, verb: &'static str) -> Self {
        let id = format!("{:032x}", fastrand::u128(..));
        let began = Timestamp::now();
        Self { id, target, verb, began, state: Mutex::default(), done: watch::channel(false).0 }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Waits until the operation has ended.
    pub(super) async fn done(&self) {
        // The sender is in `self`.
        let _ = self.done.subscribe().wait_for(|done| *done).await;
    }

    /// Returns the public state of the operation.
    pub(super) fn shown(&self) -> Value {
        let Target { host, namespace, name } = &self.target;
        let state = self.state.lock();
        let mut shown = json!({
            "id": self.id, "operation": self.verb, "host": host, "namespace": namespace, "name": name,
            "began": self.began, "steps": state.steps, "state": "Running",
        });
        if let Some(Finished { at, result }) = &state.finished {
            let (word, field, value) = match result {
                Ok(result) => ("Succeeded", "result", result),
                Err(error) => ("Failed", "error", error),
            };
            shown["state"] = word.into();
            shown["ended"] = json!(at);
            shown[field] = value.clone();
        }
        shown
    }

    fn end(&self, result: Result<Value, Value>) {
        self.state.lock().finished = Some(Finished { at: Timestamp::now(), result });
    }
}

impl Progress for Operation {
    fn step(&self, step: Step) {
        let record = StepRecord { at: Timestamp::now(), text: step.to_string(), step };
        let mut state = self.state.lock();
        state.steps.push_back(record);
        while state.steps.len() > MAX_STEPS {
            state.steps.pop_front();
        }
    }
}

/// Returns the failure as a Status in the API server's words.
fn failure(error: &Error) -> Value {
    json!(status_of(error))
}

fn interrupted() -> Value {
    json!(skopos_wire::Status::service_unavailable(
        "the gateway stopped meanwhile; the same request again continues from here"
    ))
}
