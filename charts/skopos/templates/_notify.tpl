{{- /* The configuration of the notifier: the user's, and the chart's defaults for what it leaves out. */}}
{{- define "skopos.notify.config" -}}
{{- $config := deepCopy .Values.notify.config -}}
{{- if not $config.listen }}{{ $_ := set $config "listen" "0.0.0.0:9911" }}{{ end -}}
{{- $state := $config.state | default dict -}}
{{- if not $state.folder }}{{ $_ := set $config "state" (merge $state (dict "folder" "/var/lib/skopos/notify")) }}{{ end -}}
{{- if and (gt (int .Values.notify.replicas) 1) (not $config.election) -}}
{{- $_ := set $config "election" (dict "lease" (printf "%s/%s" .Release.Namespace (include "skopos.notify.name" .))) -}}
{{- end -}}
{{- toYaml $config }}
{{- end }}

{{- /* What the sinks need: `endpoints`, `pods`, `gates`, and the `objects` of webhooks with their namespaces ("" means all). */}}
{{- define "skopos.notify.needs" -}}
{{- $needs := dict "endpoints" false "pods" false "gates" false "objects" list -}}
{{- range $sink := default list .Values.notify.config.sinks -}}
{{- if or $sink.dns $sink.haproxy $sink.ipvs }}{{ $_ := set $needs "endpoints" true }}{{ end -}}
{{- if $sink.rest -}}
{{- $_ := set $needs "pods" true -}}
{{- if $sink.rest.readinessGate }}{{ $_ := set $needs "gates" true }}{{ end -}}
{{- end -}}
{{- range $from := default list $sink.from -}}
{{- with $from.objects -}}
{{- $parts := splitList "/" .kind -}}
{{- $group := ternary (first $parts) "" (eq (len $parts) 3) -}}
{{- range $namespace := default (list "") .namespaces -}}
{{- $_ := set $needs "objects" (append $needs.objects (dict "group" $group "resource" (last $parts) "namespace" $namespace) | uniq) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $needs }}
{{- end }}
