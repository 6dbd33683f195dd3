//! The list of a program's crates in the form of CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json/>). The same lock file
//! gives the same bytes: there is no date and no serial number in it.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spdx::Expression;

use super::program::{Crate, Id, NAME, Program};

pub(super) fn of(program: &Program) -> Result<Value> {
    let (root, others): (Vec<_>, Vec<_>) = program.crates().iter().partition(|((name, _), _)| name == NAME);
    let (id, one) = root.first().context("the program is not in the list of its own crates")?;
    let mut root = component(id, one)?;
    root["type"] = "application".into();
    let components = others.iter().map(|(id, one)| component(id, one)).collect::<Result<Vec<_>>>()?;
    let dependencies = program.crates().iter().map(|(id, one)| {
        let uses: Vec<_> = one.uses.iter().map(reference).collect();
        json!({"ref": reference(id), "dependsOn": uses})
    });
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": root},
        "components": components,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn component(id: &Id, one: &Crate) -> Result<Value> {
    let (name, version) = id;
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(id),
        "name": name,
        "version": version,
        "purl": reference(id),
    });
    if let Some(licence) = &one.licence {
        // Some crates still write `MIT/Apache-2.0`, which is no expression.
        let canonical =
            Expression::canonicalize(licence).with_context(|| format!("the licence of {name}"))?;
        component["licenses"] = json!([{"expression": canonical.as_ref().unwrap_or(licence)}]);
    }
    if let Some(checksum) = &one.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    Ok(component)
}

/// A package URL (<https://github.com/package-url/purl-spec>).
fn reference((name, version): &Id) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::deps::root;

    #[test]
    fn sbom_lists_each_crate_once_with_details() {
        let program = Program::read(&root()).unwrap();
        let list = of(&program).unwrap();
        assert_eq!(list["metadata"]["component"]["name"], NAME);
        let components = list["components"].as_array().unwrap();
        assert_eq!(components.len() + 1, program.len());
        let mut names: BTreeSet<&str> =
            components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
        assert!(names.insert(list["metadata"]["component"]["bom-ref"].as_str().unwrap()));
        assert_eq!(names.len(), program.len());
        for one in components {
            let licence = one["licenses"][0]["expression"].as_str().unwrap();
            assert!(Expression::parse(licence).is_ok(), "{one}");
            let checksum = one["hashes"][0]["content"].as_str().map(str::len);
            let own = one["name"].as_str().unwrap().starts_with("skopos");
            assert_eq!(checksum, (!own).then_some(64), "{one}");
        }
        let dependencies = list["dependencies"].as_array().unwrap();
        assert_eq!(dependencies.len(), program.len());
        for one in dependencies {
            assert!(names.contains(one["ref"].as_str().unwrap()), "{one}");
            assert!(
                one["dependsOn"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|used| names.contains(used.as_str().unwrap()))
            );
        }
        let gateway = dependencies.iter().find(|one| one["ref"] == "pkg:cargo/skopos-gateway@0.1.0").unwrap();
        let used = gateway["dependsOn"].as_array().unwrap();
        assert!(used.contains(&"pkg:cargo/skopos-serve@0.1.0".into()), "{used:?}");
    }
}
