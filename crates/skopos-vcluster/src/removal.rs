//! Plan of the objects that are deleted with a virtual cluster.

use skopos_fleet::vcluster::names;

/// State of a virtual cluster that is to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// The release's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Set if it is annotated as protected against deletion.
    pub non_deletable: bool,
    /// Set if helm has a release of this name in the namespace, and is available.
    pub release: bool,
    /// Set if the namespace was created for it.
    pub own_namespace: bool,
    /// Set if another virtual cluster is in the namespace.
    pub others: bool,
}

/// Options of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalOptions {
    /// Retain the volume with its data, and so its namespace. Default: no.
    pub keep_claims: bool,
    /// Delete its ConfigMap `configmap-NAME`, too. Default: no.
    pub config_map: bool,
    /// Delete its namespace if that was created for it and no other virtual cluster is in it. Default: yes.
    pub own_namespace: bool,
    /// Delete its namespace even if that was not created for it, if no other virtual cluster is in it. Default: no.
    pub any_namespace: bool,
}

/// One removal of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// `helm delete`.
    Release,
    /// All objects of the chart, found by their labels, and helm's records of the release.
    Objects,
    /// PriorityClasses with this value of the label [`names::MANAGED_BY`].
    PriorityClasses(String),
    /// A PersistentVolumeClaim.
    Claim(String),
    /// A ConfigMap.
    ConfigMap(String),
    /// The DNS server deployed by its syncer.
    Dns,
    /// Namespaces created by its syncer, with this value of the label [`names::MANAGED_BY`].
    SyncedNamespaces(String),
    /// Its namespace with everything in it.
    Namespace,
}

/// Reason why it must not be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is annotated with [`names::NON_DELETABLE`].
    #[error(
        "virtual cluster {name} in namespace {namespace} is protected: remove the annotation {} from its workload first",
        names::NON_DELETABLE
    )]
    Protected {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
}

impl Situation {
    /// Returns the removals, in order. Each can be repeated.
    ///
    /// # Errors
    /// If it must not be deleted.
    pub fn plan(&self, options: RemovalOptions) -> Result<Vec<Removal>, Refusal> {
        let (name, namespace) = (&self.name, &self.namespace);
        if self.non_deletable {
            return Err(Refusal::Protected { name: name.clone(), namespace: namespace.clone() });
        }
        let marker = names::marker(name, namespace);
        let whole_namespace = !self.others
            && !options.keep_claims
            && (options.any_namespace || (options.own_namespace && self.own_namespace));
        let mut plan = vec![
            if self.release { Removal::Release } else { Removal::Objects },
            Removal::PriorityClasses(marker.clone()),
        ];
        if !whole_namespace && !options.keep_claims {
            plan.extend(names::claims(name).map(Removal::Claim));
        }
        if options.config_map {
            plan.push(Removal::ConfigMap(format!("configmap-{name}")));
        }
        // In a shared namespace the DNS server may belong to another.
        if !self.others {
            plan.push(Removal::Dns);
        }
        plan.push(Removal::SyncedNamespaces(marker));
        if whole_namespace {
            plan.push(Removal::Namespace);
        }
        Ok(plan)
    }
}

impl Default for RemovalOptions {
    fn default() -> Self {
        Self { keep_claims: false, config_map: false, own_namespace: true, any_namespace: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Situation {
        Situation {
            name: "shop".into(),
            namespace: "team".into(),
            release: true,
            own_namespace: true,
            ..Situation::default()
        }
    }

    fn claims() -> [Removal; 2] {
        [Removal::Claim("data-shop-0".into()), Removal::Claim("data-shop-etcd-0".into())]
    }

    #[test]
    fn own_namespace_is_removed_with_contents() {
        let marker = || "team-x-shop".to_owned();
        let plan = shop().plan(RemovalOptions::default()).unwrap();
        assert_eq!(
            plan,
            [
                Removal::Release,
                Removal::PriorityClasses(marker()),
                Removal::Dns,
                Removal::SyncedNamespaces(marker()),
                Removal::Namespace
            ]
        );
    }

    #[test]
    fn foreign_namespace_stays_and_claims_go() {
        for situation in [Situation { own_namespace: false, ..shop() }, Situation { others: true, ..shop() }]
        {
            let plan = situation.plan(RemovalOptions::default()).unwrap();
            assert!(!plan.contains(&Removal::Namespace), "{plan:?}");
            assert!(claims().iter().all(|claim| plan.contains(claim)), "{plan:?}");
        }
        let any = RemovalOptions { any_namespace: true, ..RemovalOptions::default() };
        assert!(
            Situation { own_namespace: false, ..shop() }.plan(any).unwrap().contains(&Removal::Namespace)
        );
        assert!(!Situation { others: true, ..shop() }.plan(any).unwrap().contains(&Removal::Namespace));
        let keep = RemovalOptions { own_namespace: false, ..RemovalOptions::default() };
        assert!(!shop().plan(keep).unwrap().contains(&Removal::Namespace));
    }

    #[test]
    fn kept_data_keeps_its_namespace() {
        let keep = RemovalOptions { keep_claims: true, ..RemovalOptions::default() };
        let plan = shop().plan(keep).unwrap();
        assert!(!plan.contains(&Removal::Namespace), "{plan:?}");
        assert!(claims().iter().all(|claim| !plan.contains(claim)), "{plan:?}");
    }

    #[test]
    fn removes_objects_one_by_one_without_helm() {
        let plan = Situation { release: false, ..shop() }.plan(RemovalOptions::default()).unwrap();
        assert_eq!(plan[0], Removal::Objects);
    }

    #[test]
    fn refuses_removal_of_protected_cluster() {
        let refusal =
            Situation { non_deletable: true, ..shop() }.plan(RemovalOptions::default()).unwrap_err();
        assert!(refusal.to_string().contains("loft.sh/non-deletable"), "{refusal}");
    }
}
