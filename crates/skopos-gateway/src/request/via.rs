//! Loop detection. A gateway that has itself as a member, directly or through others, would send requests to itself without
//! end. So each request to a member names the gateways that it has passed.

use http::{HeaderMap, HeaderName, HeaderValue};
use skopos_wire::{Status, StatusReason};
use uuid::Uuid;

/// The header that names the gateways, in order.
pub const VIA: HeaderName = HeaderName::from_static("skopos-via");

/// A gateway process. Its requests to members carry its ID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceId(HeaderValue);

/// The maximum number of gateways that a request may have passed.
const MAX_GATEWAYS: usize = 8;

impl InstanceId {
    /// Returns the ID of a new process.
    pub fn random() -> Self {
        // An ID is hexadecimal.
        Self(
            HeaderValue::from_str(&Uuid::new_v4().to_string()).unwrap_or(HeaderValue::from_static("unknown")),
        )
    }

    /// Returns the ID derived from a seed. For simulations, in which all requests to members must be reproducible.
    pub fn from_seed(seed: u64) -> Self {
        Self(
            HeaderValue::from_str(&Uuid::from_u64_pair(seed, seed).to_string())
                .unwrap_or(HeaderValue::from_static("unknown")),
        )
    }

    /// Returns the value of the header.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Refuses a request that has already passed this gateway, or too many gateways.
    ///
    /// # Errors
    /// 508 in these cases.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<(), Status> {
        let gateways = || headers.get_all(VIA).iter();
        if gateways().any(|gateway| *gateway == self.0) {
            return Err(loops("this cluster is this gateway itself: remove it from the gateway's clusters"));
        }
        match gateways().count() > MAX_GATEWAYS {
            true => Err(loops(
                "the request has come through too many gateways: one of them has another as its cluster, and back",
            )),
            false => Ok(()),
        }
    }
}

/// Refuses a request of another gateway to all clusters together. Objects with the same name in two clusters would replace
/// each other there. Two gateways with each other's clusters would exchange the changes of their own changes without end,
/// which no single request shows.
///
/// # Errors
/// 508 in this case.
pub(crate) fn refuse_gateways(headers: &HeaderMap) -> Result<(), Status> {
    match headers.contains_key(VIA) {
        true => Err(loops(
            "all clusters of a gateway together (/fleet) cannot be one cluster of another gateway: name a single one of them in the \
             kubeconfig (/clusters/NAME)",
        )),
        false => Ok(()),
    }
}

fn loops(why: &str) -> Status {
    Status::failure(508, StatusReason::from("LoopDetected".to_owned()), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_requests_are_recognized() {
        let (own, other) = (InstanceId::random(), InstanceId::random());
        let admitted = |gateways: &[&InstanceId]| {
            let mut headers = HeaderMap::new();
            for gateway in gateways {
                headers.append(VIA, gateway.header());
            }
            own.admit(&headers).map_err(|status| status.code)
        };
        assert_eq!(admitted(&[]), Ok(()));
        assert_eq!(admitted(&[&other, &other]), Ok(()));
        assert_eq!((admitted(&[&own]), admitted(&[&own, &other])), (Err(508), Err(508)));
        assert_eq!(admitted(&[&other; MAX_GATEWAYS + 1]), Err(508));
    }
}
