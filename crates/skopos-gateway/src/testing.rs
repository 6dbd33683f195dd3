//! Clusters for tests: scripted ones that answer reviews and keep what they were asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::ask::{Ask, AskError};

/// Members whose answers a test scripts.
#[derive(Clone)]
pub(crate) struct Script {
    shared: Arc<Shared>,
}

struct Shared {
    asked: Mutex<Vec<(String, Value)>>,
    takes: Mutex<Duration>,
    answer: Mutex<Box<Reply>>,
}

type Reply = dyn Fn(&str, &Value) -> Result<(u16, Value), AskError> + Send;

// === impl Script ===

impl Script {
    /// Answers each question, by cluster, with a status code and a body.
    pub(crate) fn new(
        answer: impl Fn(&str, &Value) -> Result<(u16, Value), AskError> + Send + 'static,
    ) -> Self {
        let shared = Shared {
            asked: Mutex::default(),
            takes: Mutex::new(Duration::from_millis(10)),
            answer: Mutex::new(Box::new(answer)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Answers reviews by what they ask.
    pub(crate) fn reviewing(status: impl Fn(&str, &Value) -> Value + Send + 'static) -> Self {
        Self::new(move |cluster, question| Ok((201, json!({"status": status(cluster, &question["spec"])}))))
    }

    pub(crate) fn answers(
        &self,
        answer: impl Fn(&str, &Value) -> Result<(u16, Value), AskError> + Send + 'static,
    ) {
        *self.shared.answer.lock() = Box::new(answer);
    }

    /// Every answer takes so long.
    pub(crate) fn takes(&self, time: Duration) {
        *self.shared.takes.lock() = time;
    }

    /// The questions so far, with the cluster that was asked.
    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        self.shared.asked.lock().clone()
    }

    pub(crate) fn arc(&self) -> Arc<dyn Ask> {
        Arc::new(self.clone())
    }
}

impl Ask for Script {
    fn ask(
        &self,
        cluster: &str,
        request: Request<Bytes>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Response<Bytes>, AskError>> {
        let question: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        self.shared.asked.lock().push((cluster.to_owned(), question.clone()));
        let answer = (self.shared.answer.lock())(cluster, &question);
        let takes = *self.shared.takes.lock();
        Box::pin(async move {
            if tokio::time::timeout(within, tokio::time::sleep(takes)).await.is_err() {
                return Err(AskError::Down("too slow".into()));
            }
            let (code, body) = answer?;
            let body = Bytes::from(body.to_string());
            Ok(Response::builder().status(code).body(body).unwrap())
        })
    }
}

/// `extra` of an identity.
pub(crate) fn extra(key: &str, values: &[&str]) -> BTreeMap<String, Vec<String>> {
    [(key.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())].into()
}
