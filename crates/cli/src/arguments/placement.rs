//! Flags for the attributes and devices of nodes, and for the requirements of runs.

use std::collections::BTreeMap;

use aod_domain::placement::{ATTRIBUTES_MAX, DEVICES_MAX, Devices, Equipment, Name, Requirement};
use clap::Args;

use crate::failure::Failure;

/// The attributes and devices of a node.
#[derive(Clone, Debug, Default, Args)]
pub struct EquipmentArguments {
    /// Attribute of this node that runs can require: `zone=eu`, `gpu_memory=24`, or a name alone (repeatable)
    #[arg(long = "attribute", env = "AOD_ATTRIBUTE", value_name = "NAME=VALUE", value_delimiter = ',',
          value_parser = Equipment::read_attribute, hide_env_values = true)]
    pub attributes: Vec<(Name, String)>,

    /// Devices of this node; each is assigned to one run at a time: `gpu=2`, or with device files
    /// `gpu=2:/dev/dri/renderD128,/dev/dri/renderD129` (repeatable)
    #[arg(long = "device", env = "AOD_DEVICE", value_name = "NAME=N[:FILE,…]", value_delimiter = ';',
          value_parser = devices, hide_env_values = true)]
    pub devices: Vec<(Name, Vec<Option<String>>)>,
}

impl EquipmentArguments {
    /// The equipment of a machine with `cpus` and `memory_bytes`.
    ///
    /// # Errors
    /// A name is given twice, or there are too many attributes.
    pub(crate) fn read(
        &self,
        cpus: usize,
        memory_bytes: u64,
    ) -> Result<(Equipment, Devices), Failure> {
        let attributes = once("--attribute", &self.attributes)?;
        if attributes.len() > ATTRIBUTES_MAX {
            let text = format!(
                "--attribute is given {} times; a node has at most {ATTRIBUTES_MAX} attributes",
                attributes.len()
            );
            return Err(Failure::usage(text));
        }
        let devices = Devices::new(once("--device", &self.devices)?);
        let equipment = Equipment {
            attributes,
            devices: devices.counts(),
            cpu_millis: u32::try_from(cpus * 1_000).ok(),
            memory_bytes: Some(memory_bytes),
        };
        Ok((equipment, devices))
    }
}

fn once<T: Clone>(flag: &str, given: &[(Name, T)]) -> Result<BTreeMap<Name, T>, Failure> {
    let mut all = BTreeMap::new();
    for (name, value) in given {
        if all.insert(name.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("{flag} {name} is given twice")));
        }
    }
    Ok(all)
}

/// `gpu=2` or `gpu=2:/dev/a,/dev/b`.
fn devices(text: &str) -> Result<(Name, Vec<Option<String>>), String> {
    let (name, rest) = text
        .split_once('=')
        .ok_or("expected NAME=N or NAME=N:FILE,…")?;
    let name: Name = name.parse().map_err(|error| format!("{error}"))?;
    let (count, files) = match rest.split_once(':') {
        Some((count, files)) => (count, Some(files)),
        None => (rest, None),
    };
    let count = number(count)?;
    let Some(files) = files else {
        return Ok((name, vec![None; count.into()]));
    };
    let mut files: Vec<&str> = files.split(',').collect();
    if files.len() != usize::from(count) {
        return Err(format!(
            "expected one file for each of {count} devices, found {}",
            files.len()
        ));
    }
    if let Some(file) = files.iter().find(|file| !file.starts_with('/')) {
        return Err(format!("expected an absolute path, found {file:?}"));
    }
    let all = files.iter().map(|file| Some((*file).to_owned())).collect();
    files.sort_unstable();
    files.dedup();
    if files.len() != usize::from(count) {
        return Err("a device file is given twice; each device needs its own file".to_owned());
    }
    Ok((name, all))
}

/// The requirements of a run.
#[derive(Clone, Debug, Default, Args)]
pub struct RequireArguments {
    /// Requirement for the node: `zone=eu`, `gpu_memory>=24`, or a name alone; operators: = != < <= > >= (repeatable)
    #[arg(long, value_name = "REQUIREMENT", value_parser = requirement)]
    pub require: Vec<String>,

    /// Number of devices that the run uses exclusively: `gpu=2` (repeatable)
    #[arg(long = "device", value_name = "NAME=N", value_parser = count)]
    pub devices: Vec<(String, u16)>,
}

fn requirement(text: &str) -> Result<String, String> {
    let requirement: Requirement = text.parse().map_err(|error| format!("{error}"))?;
    Ok(requirement.to_string())
}

fn count(text: &str) -> Result<(String, u16), String> {
    let (name, count) = text.split_once('=').unwrap_or((text, "1"));
    let name: Name = name.parse().map_err(|error| format!("{error}"))?;
    Ok((name.to_string(), number(count)?))
}

fn number(text: &str) -> Result<u16, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=DEVICES_MAX).contains(number))
        .ok_or_else(|| format!("expected a number of devices from 1 to {DEVICES_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_argument_takes_count_or_one_file_per_device() {
        let check = |text: &str, expected: Result<&[Option<&str>], &str>| {
            let found = devices(text).map(|(_, files)| files);
            let expected =
                expected.map(|files| files.iter().map(|file| file.map(str::to_owned)).collect());
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        };
        check("gpu=2", Ok(&[None, None]));
        check("gpu=2:/dev/a,/dev/b", Ok(&[Some("/dev/a"), Some("/dev/b")]));
        check("gpu", Err("expected NAME=N or NAME=N:FILE,…"));
        check("gpu=0", Err("expected a number of devices from 1 to 64"));
        let one_file = "expected one file for each of 2 devices, found 1";
        check("gpu=2:/dev/a", Err(one_file));
        let relative = "expected an absolute path, found \"dev/a\"";
        check("gpu=1:dev/a", Err(relative));
        check(
            "gpu=2:/dev/a,/dev/a",
            Err("a device file is given twice; each device needs its own file"),
        );
    }

    #[test]
    fn attribute_given_twice_is_rejected() {
        let given = |text: &str| Equipment::read_attribute(text).expect("an attribute");
        let arguments = EquipmentArguments {
            attributes: vec![given("zone=eu"), given("zone=us")],
            devices: Vec::new(),
        };
        let failure = arguments.read(2, 1 << 30).expect_err("twice");
        assert!(failure.render().contains("--attribute zone is given twice"));
    }
}
