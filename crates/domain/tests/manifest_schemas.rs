//! Compares the JSON Schemas in `docs/schemas`, which editors use, with the parsers: both accept and reject the same
//! samples.

use std::fs;
use std::path::Path;

use aod_domain::contract::Contract;
use aod_domain::manifest::{AgentManifest, ToolsManifest};
use serde_json::Value;

fn published(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let text = fs::read_to_string(path.join(name)).expect("a schema that is published");
    serde_json::from_str(&text).expect("a schema is JSON")
}

/// Checks that schema and parser both accept the sample, or both reject it.
fn check(schema: &Value, sample: &str, is_parsed: bool, is_fine: bool) {
    let value: Value = serde_saphyr::from_str(sample).expect("a sample is YAML");
    let validator = jsonschema::validator_for(schema).expect("a published schema is one");
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(errors.is_empty(), is_fine, "schema: {sample}: {errors:?}");
    assert_eq!(is_parsed, is_fine, "parser: {sample}");
}

fn check_agent(sample: &str, is_fine: bool) {
    let parsed = AgentManifest::parse(sample.as_bytes()).is_ok();
    check(&published("agent.json"), sample, parsed, is_fine);
}

fn check_tools(sample: &str, is_fine: bool) {
    let parsed = ToolsManifest::parse(sample.as_bytes()).is_ok();
    check(&published("tools.json"), sample, parsed, is_fine);
}

fn check_schema(sample: &str, is_fine: bool) {
    let parsed = Contract::parse(sample.as_bytes()).is_ok();
    check(&published("schema.json"), sample, parsed, is_fine);
}

#[test]
fn agents() {
    let fine = [
        "{}",
        "model: gpt-4o-mini\ntemperature: 0.4\nmax_tokens: 10000\n",
        "version: 1\nname: capsule-b\ntitle: B\ndescription: x\naliases: [b]\nmodel: none\n",
        "models: {cheap: {provider: ollama, model: 'a:8b', base_url: 'http://x', api_key_env: KEY, settings: {seed: -7}}}\nfallback: [a/b]\n",
        "settings: {temperature: 1, top_p: 0.5, max_tokens: 5, timeout_s: 60, thinking: low, parallel_tool_calls: false, stream: true}\n",
        "output_mode: native\nretries: {model: 0, tool: 1, output: 2}\n",
        "limits: {max_turns: 3, max_tool_calls: 1, max_total_tokens: 9, max_output_tokens: 9, max_cost_usd: 0.5, timeout_s: 10}\n",
        "prompts: {system: a/b.md, task: c.md}\nenv: {MODE: fast, LEVEL: 3, ON: true}\n",
        "secrets: [OPENAI_API_KEY, {name: db, env: DATABASE_PASSWORD, required: false}]\n",
        "resources: {cpus: 0.5, memory: 512m, pids: 64, timeout_s: 120, network: egress}\n",
        "egress: [api.example.com, 'api.example.com:8443', '*.example.com', '93.184.216.34:80', '[2606:4700::1111]']\n",
        "resources: {memory: 2GiB}\ntelemetry: {capture_content: true}\n",
        "resources: {memory: 1073741824}\n",
        "placement: {require: [zone=eu, 'gpu_memory>=24', ssd, 'rack!=b'], devices: {gpu: 2}}\n",
    ];
    let wrong = [
        "[]",
        "version: 2\n",
        "name: Capsule B\n",
        "modle: x\n",
        "title: 7\n",
        "aliases: b\n",
        "settings: {temperature: 3}\n",
        "settings: {thinking: hard}\n",
        "models: {cheap: {provider: ollama}}\n",
        "output_mode: free\n",
        "retries: {model: -1}\n",
        "limits: {timeout_s: 0}\n",
        "secrets: [{env: X}]\n",
        "secrets: ['no name']\n",
        "egress: api.example.com\n",
        "egress: ['*']\n",
        "egress: ['https://example.com']\n",
        "egress: ['example.com:port']\n",
        "env: {LIST: [1]}\n",
        "resources: {cpus: 0}\n",
        "resources: {memory: lots}\n",
        "resources: {memory: 1024}\n",
        "resources: {network: all}\n",
        "placement: {require: zone=eu}\n",
        "placement: {require: ['Zone=eu']}\n",
        "placement: {require: ['zone=']}\n",
        "placement: {require: ['gpu_memory>=lots']}\n",
        "placement: {devices: {gpu: 0}}\n",
        "placement: {devices: {GPU: 1}}\n",
        "placement: {devices: [gpu]}\n",
        "telemetry: {capture_content: 1}\n",
    ];
    for sample in fine {
        check_agent(sample, true);
    }
    for sample in wrong {
        check_agent(sample, false);
    }
}

#[test]
fn tools() {
    let fine = [
        "{}",
        "[]",
        "- chart\n- Capsule B\n",
        "- {name: search, description: x, parameters: {type: object}}\n",
        "version: 1\ncapsules:\n- chart\n- {name: report, as: r, description: x, max_calls: 3, timeout_s: 9, visible_to_ai: false, args: {a: 1}}\n",
        "mcp_servers: {files: {command: x, args: [word], env: {A: 1}, allow: '*', timeout_s: 5}}\n",
        "mcpServers: {web: {url: 'http://x', headers: {A: b}, allow: [search]}}\n",
        "python: ['src.tools:search']\n",
    ];
    let wrong = [
        "version: 2\n",
        "capsules: chart\n",
        "capsules: ['*']\n",
        "capsules: ['']\n",
        "capsules: [{as: x}]\n",
        "capsules: [{name: x, max_calls: 0}]\n",
        "capsules: [{name: x, unknown: 1}]\n",
        "mcp_servers: {files: {command: x}}\n",
        "mcp_servers: {files: {allow: '*'}}\n",
        "mcp_servers: {files: {command: x, headers: {}, allow: '*'}}\n",
        "mcp_servers: {files: {url: x, command: y, allow: '*'}}\n",
        "python: [search]\n",
        "tools: []\n",
    ];
    for sample in fine {
        check_tools(sample, true);
    }
    for sample in wrong {
        check_tools(sample, false);
    }
}

#[test]
fn contracts() {
    let fine = [
        r#"{"input": {}, "output": true}"#,
        r#"{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "x", "input": {"type": "object",
            "properties": {"table": {"type": "string", "format": "file_path"}}}, "output": {"type": "object"}}"#,
    ];
    let wrong = [
        "{}",
        r#"{"input": {}}"#,
        r#"{"input": {}, "output": 7}"#,
        r#"{"input": {"type": "int"}, "output": {}}"#,
        r#"{"input": {"properties": {"a": {"minimum": "x"}}}, "output": {}}"#,
    ];
    for sample in fine {
        check_schema(sample, true);
    }
    for sample in wrong {
        check_schema(sample, false);
    }
}
