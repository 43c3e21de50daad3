//! Rules of manifests and names; the `check…` functions are the only callers of the code under test.

use std::fmt;

use crate::text::nearest;
use crate::yaml::Problem;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn check_agent(yaml: &str) -> AgentManifest {
    AgentManifest::parse(yaml.as_bytes()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn check_tools(yaml: &str) -> ToolsManifest {
    ToolsManifest::parse(yaml.as_bytes()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// The problems, in order, begin with these places and contain these words.
fn check_problems<T: fmt::Debug>(found: Result<T, Vec<Problem>>, expected: &[(&str, &str)]) {
    let found: Vec<_> = found
        .expect_err("problems")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (place, words)) in found.iter().zip(expected) {
        assert!(
            found.starts_with(place) && found.contains(words),
            "{found:?} is not {place} {words}"
        );
    }
}

fn check_agent_problems(yaml: &str, expected: &[(&str, &str)]) {
    check_problems(AgentManifest::parse(yaml.as_bytes()), expected);
}

fn check_tools_problems(yaml: &str, expected: &[(&str, &str)]) {
    check_problems(ToolsManifest::parse(yaml.as_bytes()), expected);
}

#[test]
fn agent_on_demand_agent_loads() {
    let agent = check_agent("model: gpt-4o-mini\ntemperature: 0.4\nmax_tokens: 10000\n");
    assert_eq!(agent.model.as_deref(), Some("gpt-4o-mini"));
    assert_eq!(
        (agent.settings.temperature, agent.settings.max_tokens),
        (Some(0.4), Some(10_000))
    );
    let rest = AgentManifest {
        model: None,
        settings: Settings::default(),
        ..agent
    };
    assert_eq!(rest, AgentManifest::default());
}

#[test]
fn empty_file_has_the_defaults() {
    for yaml in ["", "\n", "# nothing\n", "---\n", "~", "{}"] {
        assert_eq!(check_agent(yaml), AgentManifest::default(), "{yaml:?}");
        assert_eq!(check_tools(yaml), ToolsManifest::default(), "{yaml:?}");
    }
    assert_eq!(
        check_agent("title:\nresources:\n"),
        AgentManifest::default()
    );
}

#[test]
fn all_fields_of_an_agent_are_read() {
    let agent = check_agent(
        "version: 1
name: capsule-b
title: Capsule B
description: Makes a report.
aliases: [B, 'the second']
model: cheap
models:
  cheap: {provider: ollama, model: 'llama3:8b', base_url: 'http://models', api_key_env: KEY, settings: {seed: 7}}
fallback: [openai/gpt-4o]
settings: {temperature: 1, top_p: 0.5, max_tokens: 5, timeout_s: 60, thinking: low, parallel_tool_calls: false, stream: true}
output_mode: native
retries: {model: 0}
limits: {max_turns: 3, max_total_tokens: 1000, max_cost_usd: 0.5, timeout_s: 10}
prompts: {system: prompts/system.md}
secrets: [OPENAI_API_KEY, {name: db, env: DATABASE_PASSWORD, required: false}]
egress: [API.example.com, '*.example.org:8443']
env: {MODE: fast, LEVEL: 3, ON: true}
resources: {cpus: 0.5, memory: 512m, pids: 64, timeout_s: 120, network: egress}
telemetry: {capture_content: true}
",
    );
    assert_eq!(
        agent.name.as_ref().map(CapsuleName::as_str),
        Some("capsule-b")
    );
    assert_eq!(agent.title.as_deref(), Some("Capsule B"));
    assert_eq!(agent.aliases, ["B", "the second"]);
    assert_eq!(agent.models["cheap"].model, "llama3:8b");
    assert_eq!(agent.models["cheap"].settings.seed, Some(7));
    assert_eq!(agent.settings.temperature, Some(1.0));
    assert_eq!(agent.settings.thinking, Some(Thinking::Low));
    assert_eq!(agent.output_mode, OutputMode::Native);
    assert_eq!(
        agent.retries,
        Retries {
            model: 0,
            tool: 1,
            output: 2
        }
    );
    assert_eq!(
        (agent.limits.turns_max, agent.limits.tool_calls_max),
        (3, 50)
    );
    assert_eq!(
        agent.prompts.system.map(String::from).as_deref(),
        Some("prompts/system.md")
    );
    assert_eq!(agent.secrets[0].env, "OPENAI_API_KEY");
    assert_eq!(
        (agent.secrets[1].env.as_str(), agent.secrets[1].required),
        ("DATABASE_PASSWORD", false)
    );
    let egress: Vec<String> = agent.egress.iter().map(ToString::to_string).collect();
    assert_eq!(egress, ["api.example.com:443", "*.example.org:8443"]);
    assert_eq!(agent.env["LEVEL"], "3");
    assert_eq!(agent.env["ON"], "true");
    assert_eq!(
        (agent.resources.cpu_millis, agent.resources.memory_bytes),
        (500, 512 << 20)
    );
    assert_eq!(
        (agent.resources.pids, agent.resources.timeout_seconds),
        (64, 120)
    );
    assert_eq!(agent.network, Network::Egress);
    assert!(agent.capture_content);
}

#[test]
fn a_capsule_without_a_model_says_none_or_nothing() {
    assert_eq!(check_agent("model: none").model, None);
    assert_eq!(check_agent("title: x").model, None);
}

#[test]
fn amounts_of_memory_have_units() {
    for (text, bytes) in [
        ("2g", 2 << 30),
        ("1GiB", 1 << 30),
        ("7340032", 7 << 20),
        ("'6291456'", 6 << 20),
        ("10240k", 10 << 20),
    ] {
        assert_eq!(
            check_agent(&format!("resources: {{memory: {text}}}"))
                .resources
                .memory_bytes,
            bytes
        );
    }
    for text in ["5m", "2x", "-1g", "1.5g", "99999999999t", "g"] {
        check_agent_problems(
            &format!("resources: {{memory: {text}}}"),
            &[("agent.yaml:1:21: ", "such as 512m")],
        );
    }
    check_agent_problems(
        "resources: {memory: 4}",
        &[(
            "agent.yaml:1:21: ",
            "4 found; expected a whole number from 6291456",
        )],
    );
}

#[test]
fn all_mistakes_are_reported_together_with_their_places() {
    check_agent_problems(
        "version: 2
titel: x
name: Capsule B
settings:
  temprature: 1
  temperature: 3
aliases: one
resources: {cpus: 0, network: all, timeout_s: 1.5}
description: 5
",
        &[
            (
                "agent.yaml:1:10: ",
                "2 found; expected a whole number from 1 to 1",
            ),
            ("agent.yaml:2:1: ", "unknown key \"titel\""),
            ("agent.yaml:3:7: ", "invalid capsule name \"Capsule B\""),
            ("agent.yaml:5:3: ", "did you mean \"temperature\"?"),
            (
                "agent.yaml:6:16: ",
                "3 found; expected a number from 0 to 2",
            ),
            ("agent.yaml:7:10: ", "\"one\" found; expected a list"),
            ("agent.yaml:8:19: ", "0 found"),
            (
                "agent.yaml:8:31: ",
                "\"all\" found; expected one of none, egress",
            ),
            ("agent.yaml:8:47: ", "1.5 found; expected a whole number"),
            (
                "agent.yaml:9:14: ",
                "5 found; expected text: put quotes around it",
            ),
        ],
    );
    check_agent_problems(
        "titel: x",
        &[("agent.yaml:1:1: ", "did you mean \"title\"?")],
    );
}

#[test]
fn yaml_syntax_errors_are_reported_with_their_place() {
    check_agent_problems("title: [a\nname: b\n", &[("agent.yaml:2:", "")]);
    check_agent_problems("a: 1\na: 2\n", &[("agent.yaml:2:1: ", "duplicate")]);
    check_agent_problems(
        "- a\n",
        &[("agent.yaml:1:1: ", "a list found; expected a mapping")],
    );
    check_agent_problems("a: 1\n---\nb: 1\n", &[("agent.yaml:", "")]);
    check_problems(
        AgentManifest::parse(b"title: \xff"),
        &[("agent.yaml: ", "not UTF-8")],
    );
    let large = " ".repeat(MANIFEST_SIZE_BYTES_MAX + 1);
    check_agent_problems(&large, &[("agent.yaml: ", "expected at most 65536")]);
}

#[test]
fn hostile_yaml_is_refused() {
    let deep = format!("title: {}", "[".repeat(20_000));
    check_problems(
        AgentManifest::parse(deep.as_bytes()),
        &[("agent.yaml:1:", "")],
    );
    let level = |level| {
        format!(
            "a{level}: &a{level} [*a{0}, *a{0}, *a{0}, *a{0}]\n",
            level - 1
        )
    };
    let levels: Vec<String> = (1..20).map(level).collect();
    let bomb = format!("a0: &a0 [x, x]\n{}", levels.concat());
    check_problems(
        ToolsManifest::parse(bomb.as_bytes()),
        &[("tools.yaml:", "")],
    );
}

#[test]
fn unreachable_hosts_are_refused_together() {
    check_agent_problems(
        "egress:\n- '*'\n- api.example.com\n- 10.0.0.1\n- localhost:80\n",
        &[
            ("agent.yaml:2:3: ", "permits every host"),
            ("agent.yaml:4:3: ", "10.0.0.1 is private"),
            ("agent.yaml:5:3: ", "the container itself"),
        ],
    );
    let many = "- api.example.com\n".repeat(65);
    check_agent_problems(
        &format!("egress:\n{many}"),
        &[("agent.yaml:2:3: ", "65 items; expected at most 64")],
    );
}

#[test]
fn variables_have_names_and_are_few() {
    let large = "x".repeat(5_000);
    check_agent_problems(
        &format!("env:\n  A B: 1\n  2C: {large}\n"),
        &[
            ("agent.yaml:2:3: ", "invalid variable name \"2C\""),
            ("agent.yaml:2:3: ", "invalid variable name \"A B\""),
            ("agent.yaml:2:3: ", "bytes; expected at most 4096"),
        ],
    );
}

#[test]
fn a_secret_is_named_once() {
    check_agent_problems(
        "secrets:\n- KEY\n- {name: OTHER, env: KEY}\n- {name: KEY, env: THIRD}\n",
        &[
            ("agent.yaml:3:3: ", "the env \"KEY\" is given twice"),
            ("agent.yaml:4:3: ", "the name \"KEY\" is given twice"),
        ],
    );
}

#[test]
fn secret_values_are_refused_and_not_repeated() {
    let key = "sk-proj-0123456789abcdef";
    for yaml in [
        format!("secrets: [{key}]"),
        format!("env: {{OPENAI_API_KEY: {key}}}"),
        format!("models: {{a: {{provider: p, model: m, api_key_env: {key}}}}}"),
    ] {
        let problems = AgentManifest::parse(yaml.as_bytes()).expect_err("a key");
        assert!(
            problems.len() == 1 && problems[0].message.contains("looks like a key"),
            "{problems:?}"
        );
        assert!(!problems[0].message.contains(key), "{}", problems[0]);
    }
}

#[test]
fn agent_on_demand_tools_load_and_grant_nothing() {
    let tools = check_tools(
        "- name: web_search
  description: Searches the web.
  parameters:
    type: object
    properties: {query: {type: string}}
    required: [query]
- name: finish
",
    );
    assert_eq!(tools.capsules, []);
    assert_eq!(tools.functions[0].name, "web_search");
    let parameters = json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]});
    assert_eq!(tools.functions[0].parameters, Some(parameters));
    assert_eq!(tools.functions[1].description, None);
}

#[test]
fn all_fields_of_tools_are_read() {
    let tools = check_tools(
        "version: 1
capsules:
  - Capsule B
  - {name: capsule-c, as: draw, description: Draws., max_calls: 3, timeout_s: 60, visible_to_ai: false, args: {size: {w: 1}}}
mcp_servers:
  local: {command: python, args: [-m, server], env: {LEVEL: 1}, allow: [read], timeout_s: 5}
mcpServers:
  remote: {url: 'http://tools', headers: {accept: text}, allow: '*'}
python: ['tools.math:add']
",
    );
    assert_eq!(tools.capsules[0].target, "Capsule B");
    assert!(tools.capsules[0].visible_to_ai);
    let second = &tools.capsules[1];
    assert_eq!(
        (second.target.as_str(), second.tool_name.as_deref()),
        ("capsule-c", Some("draw"))
    );
    assert_eq!(
        (
            second.calls_max,
            second.timeout_seconds,
            second.visible_to_ai
        ),
        (Some(3), Some(60), false)
    );
    assert_eq!(second.args["size"], json!({"w": 1}));
    assert_eq!(
        tools.mcp_servers["local"].allow,
        Allowed::Listed(vec!["read".to_owned()])
    );
    assert!(
        matches!(&tools.mcp_servers["local"].transport, Transport::Command { env, .. } if env["LEVEL"] == "1")
    );
    assert_eq!(tools.mcp_servers["remote"].allow, Allowed::All);
    assert!(
        matches!(&tools.mcp_servers["remote"].transport, Transport::Url { url, .. } if url == "http://tools")
    );
    assert_eq!(tools.python, ["tools.math:add"]);
}

#[test]
fn numbers_keep_their_values() {
    let tools = "capsules:\n- name: chart\n  args: {a: 18446744073709551615, b: 1.50, c: -0x10, d: +2.5e3}\n";
    let args = serde_json::to_value(&check_tools(tools).capsules[0].args).unwrap();
    let expected = json!({"a": u64::MAX, "b": 1.5, "c": -16, "d": 2500.0});
    assert_eq!(args, expected);
    check_tools_problems(
        "capsules:\n- name: chart\n  args:\n    a: &x 3.141592653589793238\n    b: [18446744073709551616, *x]\n    c: .inf\n    d: .NaN\n    e: 1e400\n",
        &[
            ("tools.yaml:4:", "3.141592653589793238 given; a 64-bit"),
            (
                "tools.yaml:5:9",
                "18446744073709551616 given; expected an integer",
            ),
            ("tools.yaml:5:31", "3.141592653589793238 given; a 64-bit"),
            ("tools.yaml:6:8", ".inf given; expected a finite number"),
            ("tools.yaml:7:8", ".NaN given; expected a finite number"),
            ("tools.yaml:8:8", "1e400 given; expected"),
        ],
    );
    let long = format!("{}1", "0".repeat(60_000));
    check_tools_problems(
        &format!(
            "capsules:\n- name: chart\n  args:\n    a: 09007199254740993\n    b: !!float \"1.5\"\n    c: !!int \"5\"\n    d: 1.{long}\n"
        ),
        &[
            ("tools.yaml:4:8", "09007199254740993.0 given; a 64-bit"),
            ("tools.yaml:5:", "expected a number without tag and quotes"),
            ("tools.yaml:6:", "expected a number without tag and quotes"),
            ("tools.yaml:7:8", "given; a 64-bit number keeps only 1"),
        ],
    );
}

#[test]
fn variables_have_numbers_as_written() {
    let agent = check_agent("env: {VERSION: 1.10, ZIP: 007, LARGE: 18446744073709551615}\n");
    let values: Vec<_> = agent.env.into_values().collect();
    assert_eq!(values, ["18446744073709551615", "1.10", "007"]);
}

#[test]
fn bare_list_of_names_lists_capsules() {
    let tools = check_tools("[capsule-b, Capsule C]");
    let targets: Vec<_> = tools
        .capsules
        .iter()
        .map(|grant| grant.target.as_str())
        .collect();
    assert_eq!(targets, ["capsule-b", "Capsule C"]);
}

#[test]
fn mistakes_in_tools_are_reported_together() {
    check_tools_problems(
        "capsules: [{nmae: x}, '', 5, '*']
mcp_servers: {a: {command: x}, b: {allow: some, url: x}, c: {allow: []}}
python: [math]
tools: []
",
        &[
            ("tools.yaml:1:12: ", "key \"name\" is missing"),
            ("tools.yaml:1:13: ", "did you mean \"name\"?"),
            ("tools.yaml:1:23: ", "an empty name"),
            ("tools.yaml:1:27: ", "5 found; expected a mapping"),
            ("tools.yaml:1:30: ", "expected each capsule by name"),
            ("tools.yaml:2:18: ", "key \"allow\" is missing"),
            ("tools.yaml:2:43: ", "expected a list of tools"),
            ("tools.yaml:2:61: ", "key \"command\" is missing"),
            ("tools.yaml:3:10: ", "module:function"),
            ("tools.yaml:4:1: ", "unknown key \"tools\""),
        ],
    );
}

#[test]
fn capsule_names_are_labels() {
    for text in ["a", "0", "capsule-b", "a--b", &"x".repeat(63)] {
        assert_eq!(
            CapsuleName::parse(text).map(String::from).as_deref(),
            Ok(text)
        );
    }
    for text in [
        "",
        "-",
        "-a",
        "a-",
        "A",
        "a_b",
        "a.b",
        "a b",
        "ü",
        "*",
        ">",
        "../x",
        "a\n",
        &"x".repeat(64),
    ] {
        assert!(CapsuleName::parse(text).is_err(), "{text:?}");
        assert!(
            serde_json::from_value::<CapsuleName>(json!(text)).is_err(),
            "{text:?}"
        );
    }
}

#[test]
fn a_title_has_a_slug() {
    let check = |title: &str, expected: Option<&str>| {
        assert_eq!(
            slug(title).as_ref().map(CapsuleName::as_str),
            expected,
            "{title:?}"
        );
    };
    check("Capsule B", Some("capsule-b"));
    check("capsule-b", Some("capsule-b"));
    check("  Summarize: Text (v2)! ", Some("summarize-text-v2"));
    check("web_context", Some("web-context"));
    check("Résumé", Some("r-sum"));
    check("日本", None);
    check("", None);
    check(&format!("{} b", "a".repeat(62)), Some(&"a".repeat(62)));
}

#[test]
fn every_name_is_its_own_slug() {
    for text in ["a--b", "a", "0-1", "capsule-b"] {
        let name = CapsuleName::parse(text).expect("a proper name");
        let registered = Registered {
            name: &name,
            title: None,
            aliases: &[],
        };
        assert_eq!(resolve(text, [registered]), Ok(&name));
        assert_eq!(slug(text), Some(name));
    }
}

fn check_resolve(target: &str, expected: Result<&str, &str>) {
    let name = |text| CapsuleName::parse(text).expect("a proper name");
    let (b, c, d) = (name("capsule-b"), name("other"), name("third"));
    let (aliases, clashing) = (["B".to_owned()], ["B2".to_owned(), "Both".to_owned()]);
    let registered = [
        Registered {
            name: &b,
            title: Some("Both"),
            aliases: &aliases,
        },
        Registered {
            name: &c,
            title: Some("third"),
            aliases: &clashing,
        },
        Registered {
            name: &d,
            title: None,
            aliases: &[],
        },
    ];
    match (resolve(target, registered), expected) {
        (Ok(found), expected) => assert_eq!(Ok(found.as_str()), expected),
        (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
        (Err(error), Ok(expected)) => panic!("{target:?} is {expected}, not: {error}"),
    }
}

#[test]
fn a_target_is_a_title_an_alias_or_a_name() {
    check_resolve("B", Ok("capsule-b"));
    check_resolve("B2", Ok("other"));
    check_resolve("Capsule B", Ok("capsule-b"));
    check_resolve("capsule-b", Ok("capsule-b"));
    // A title comes before a name.
    check_resolve("third", Ok("other"));
    check_resolve("Third", Ok("third"));
    check_resolve("Both", Err("several capsules (capsule-b, other)"));
    check_resolve(
        "capsul-b",
        Err("no capsule is named \"capsul-b\"; did you mean \"capsule-b\"?"),
    );
    check_resolve("", Err("no capsule is named \"\""));
    check_resolve("日本", Err("no capsule is named"));
}

#[test]
fn the_nearest_word_is_near() {
    assert_eq!(nearest("titel", ["title", "name"]), Some("title"));
    assert_eq!(nearest("xyz", ["title", "name"]), None);
    assert_eq!(nearest("", ["title"]), None);
    assert_eq!(nearest(&"x".repeat(100_000), ["title"]), None);
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(AgentManifest::parse(&bytes));
        drop(ToolsManifest::parse(&bytes));
    }

    #[test]
    fn parsing_yaml_never_panics(yaml in "([a-z_]{1,8}|[ \\n:,&*!|>'\"#%@`~?-]|\\[|\\]|\\{|\\}){0,80}") {
        drop(AgentManifest::parse(yaml.as_bytes()));
        drop(ToolsManifest::parse(yaml.as_bytes()));
    }

    #[test]
    fn a_slug_is_its_own_slug(title in "\\PC{0,100}") {
        if let Some(name) = slug(&title) {
            prop_assert_eq!(slug(name.as_str()), Some(name));
        }
    }
}
