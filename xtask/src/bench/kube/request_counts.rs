// SPDX-License-Identifier: Apache-2.0
//! Counts requests with the metrics of the servers, in the text format of Prometheus.

use std::collections::BTreeMap;

/// Requests of the operator by kind, such as `PATCH baremetalhosts/status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestCounts(BTreeMap<String, f64>);

/// Lists of hosts, each page of a list.
const HOST_LISTS: &str = "LIST baremetalhosts";
/// Routes that agents call.
const AGENT_ROUTES: [&str; 3] = ["/v1/lookup", "/v1/heartbeat", "/v1/continue_inspection"];

impl RequestCounts {
    /// Requests that the API server handled for hosts: those for objects of Metal3, Secrets and events.
    /// Creations of hosts and Secrets are left out, because only the benchmark creates them. Watches are
    /// counted when they end.
    pub(super) fn kubernetes(metrics: &str) -> Self {
        let mut counts = BTreeMap::new();
        for (labels, value) in samples(metrics, "apiserver_request_total") {
            let label = |name: &str| labels.get(name).copied().unwrap_or_default();
            let (verb, resource) = (label("verb"), label("resource"));
            let is_counted =
                label("group") == "metal3.io" || matches!(resource, "secrets" | "events");
            let is_creation = verb == "POST" && matches!(resource, "baremetalhosts" | "secrets");
            if !is_counted || is_creation {
                continue;
            }
            let kind = match label("subresource") {
                "" => format!("{verb} {resource}"),
                subresource => format!("{verb} {resource}/{subresource}"),
            };
            *counts.entry(kind).or_default() += value;
        }
        Self(counts)
    }

    /// Leaves out lists of hosts by the benchmark itself.
    pub(super) fn without_host_lists(mut self, count: usize) -> Self {
        if let Some(lists) = self.0.get_mut(HOST_LISTS) {
            *lists = (*lists - count as f64).max(0.0);
        }
        self
    }

    /// Requests that the service handled, without those of agents.
    pub(super) fn ironic(metrics: &str) -> Self {
        let mut counts = BTreeMap::new();
        for (labels, value) in samples(metrics, "ferrite_http_requests_total") {
            let label = |name: &str| labels.get(name).copied().unwrap_or_default();
            let route = label("route");
            let is_agent = AGENT_ROUTES.iter().any(|agent| route.starts_with(agent));
            if route.starts_with("/v1") && !is_agent {
                *counts.entry(format!("{} {route}", label("method"))).or_default() += value;
            }
        }
        Self(counts)
    }

    /// Requests since an earlier count.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let counts = self.0.iter().map(|(kind, count)| {
            (kind.clone(), count - earlier.0.get(kind).copied().unwrap_or_default())
        });
        Self(counts.filter(|(_, count)| *count > 0.0).collect())
    }

    pub(super) fn total(&self) -> f64 {
        // `sum` returns -0 for nothing.
        self.0.values().fold(0.0, |sum, count| sum + count)
    }

    /// Sums by the first word, the verb.
    pub(super) fn by_verb(&self) -> BTreeMap<&str, f64> {
        let mut sums = BTreeMap::new();
        for (kind, count) in &self.0 {
            let verb = kind.split(' ').next().unwrap_or_default();
            *sums.entry(verb).or_default() += count;
        }
        sums
    }

    /// Kinds and counts, the most frequent first.
    pub(super) fn most_frequent(&self) -> Vec<(&str, f64)> {
        let mut kinds: Vec<(&str, f64)> =
            self.0.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        kinds.sort_by(|one, other| other.1.total_cmp(&one.1));
        kinds
    }
}

/// Labels and values of the samples of one metric.
pub(super) fn samples<'a>(
    metrics: &'a str,
    name: &'a str,
) -> impl Iterator<Item = (BTreeMap<&'a str, &'a str>, f64)> {
    metrics.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            // Values of labels may contain braces.
            Some(rest) => rest.rsplit_once('}')?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let value = value.split_whitespace().next()?.parse().ok()?;
        Some((parse_labels(labels), value))
    })
}

/// Parses `a="b",c="d"`. No metric that is read has quotation marks in its labels.
fn parse_labels(text: &str) -> BTreeMap<&str, &str> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let Some((value, after)) = after.split_once('"') else { break };
        labels.insert(name.trim_start_matches(','), value);
        rest = after;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_SERVER: &str = r#"
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="metal3.io",resource="baremetalhosts",subresource="status",verb="PATCH"} 5
apiserver_request_total{code="409",group="metal3.io",resource="baremetalhosts",subresource="status",verb="PATCH"} 1
apiserver_request_total{code="201",group="metal3.io",resource="baremetalhosts",subresource="",verb="POST"} 9
apiserver_request_total{code="201",group="metal3.io",resource="hardwaredata",subresource="",verb="POST"} 2
apiserver_request_total{code="200",group="",resource="secrets",subresource="",verb="GET"} 1.2e+03
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 7
apiserver_request_total_other{verb="GET"} 7
"#;

    #[test]
    fn requests_of_the_benchmark_and_for_other_objects_are_left_out() {
        let counts = RequestCounts::kubernetes(API_SERVER);
        let expected = [
            ("GET secrets", 1200.0),
            ("PATCH baremetalhosts/status", 6.0),
            ("POST hardwaredata", 2.0),
        ];
        assert_eq!(counts.most_frequent(), expected);
        assert_eq!(counts.total(), 1208.0);
        assert_eq!(counts.since(&counts), RequestCounts::default());
        let lists = "apiserver_request_total{group=\"metal3.io\",resource=\"baremetalhosts\",subresource=\"\",verb=\"LIST\"}";
        let before = RequestCounts::kubernetes(&format!("{lists} 3")).without_host_lists(1);
        let after = RequestCounts::kubernetes(&format!("{lists} 9")).without_host_lists(6);
        assert_eq!(after.since(&before).total(), 1.0);
        assert_eq!(counts.since(&RequestCounts::default()), counts);
    }

    #[test]
    fn requests_of_agents_are_left_out() {
        let counts = RequestCounts::ironic(
            "ferrite_http_requests_total{method=\"GET\",route=\"/v1/nodes/{node}\",class=\"2xx\"} 3\n\
             ferrite_http_requests_total{method=\"GET\",route=\"/v1/nodes\",class=\"2xx\"} 1\n\
             ferrite_http_requests_total{method=\"POST\",route=\"/v1/heartbeat/{node}\",class=\"2xx\"} 9\n\
             ferrite_http_requests_total{method=\"GET\",route=\"/metrics\",class=\"2xx\"} 9\n",
        );
        assert_eq!(counts.by_verb(), BTreeMap::from([("GET", 4.0)]));
    }

    #[test]
    fn samples_without_labels_are_read() {
        assert_eq!(samples("a 1\nab 2\n", "a").map(|(_, value)| value).collect::<Vec<_>>(), [1.0]);
    }
}
