{{- /* The configuration of the gateway: the user's, and the chart's defaults for what it leaves out. */}}
{{- define "skopos.gateway.config" -}}
{{- $config := deepCopy .Values.gateway.config -}}
{{- $listen := default dict $config.listen -}}
{{- if not $listen.address }}{{ $_ := set $listen "address" "0.0.0.0:6443" }}{{ end -}}
{{- if not $listen.tls }}{{ $_ := set $listen "tls" (dict "certificate" "/etc/skopos/tls/tls.crt" "key" "/etc/skopos/tls/tls.key") }}{{ end -}}
{{- $_ := set $config "listen" $listen -}}
{{- if .Values.gateway.continueKeys.existingSecret -}}
{{- $_ := set $config "replicas" (set (default dict $config.replicas) "continueKeys" "/etc/skopos/continue/keys") -}}
{{- end -}}
{{- $checkpoints := default dict $config.checkpoints -}}
{{- if and .Values.gateway.checkpoints.enabled (not $checkpoints.folder) (not $checkpoints.bucket) -}}
{{- /* A folder in the volume: its root may be open to all users, and may have lost+found. */}}
{{- $_ := set $config "checkpoints" (set $checkpoints "folder" "/var/lib/skopos/gateway") -}}
{{- end -}}
{{- if not (or $config.clusters $config.authentication) -}}
{{- $_ := set $config "clusters" (dict "vclusters" (list (dict "host" (dict "name" "host")))) -}}
{{- $_ := set $config "authentication" (dict "tokenReview" (dict "cluster" "host")) -}}
{{- end -}}
{{- toYaml $config }}
{{- end }}

{{- /* The sources that use the pod's service account: `names` of this cluster, and the namespaces of `vclusters`, `secrets` and
       `clusterProfiles` ("" means all). Namespaces of profiles with tokens in Secrets are in `secrets`, too. */}}
{{- define "skopos.gateway.host" -}}
{{- $config := fromYaml (include "skopos.gateway.config" .) -}}
{{- $clusters := default dict $config.clusters -}}
{{- $host := dict "names" list "vclusters" list "secrets" list "clusterProfiles" list -}}
{{- range $source := list "vclusters" "secrets" "clusterProfiles" -}}
{{- range $entry := default list (index $clusters $source) -}}
{{- $of := default dict $entry.host -}}
{{- if not (or $of.kubeconfig $of.path) -}}
{{- $_ := set $host "names" (append $host.names (default "host" $of.name) | uniq) -}}
{{- $namespaces := default (list "") $entry.namespaces -}}
{{- $_ := set $host $source (concat (index $host $source) $namespaces | uniq) -}}
{{- range $provider := default list $entry.providers -}}
{{- if hasKey $provider "secret" -}}
{{- $_ := set $host "secrets" (concat $host.secrets $namespaces | uniq) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $host }}
{{- end }}

{{- /* Returns "true" if the chart's Secret of the certificate is used. */}}
{{- define "skopos.gateway.tls" -}}
{{- if not (dig "listen" "tls" "" .Values.gateway.config) }}true{{ end }}
{{- end }}

{{- define "skopos.gateway.tls.secret" -}}
{{- default (printf "%s-tls" (include "skopos.gateway.name" .)) .Values.gateway.tls.existingSecret }}
{{- end }}

{{- define "skopos.gateway.tls.names" -}}
{{- $name := include "skopos.gateway.name" . -}}
{{- $names := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) "localhost" -}}
{{- toJson (concat $names .Values.gateway.tls.dnsNames | uniq) }}
{{- end }}

{{- /* Returns "true" if checkpoints are written to the volume at /var/lib/skopos. */}}
{{- define "skopos.gateway.volume" -}}
{{- $config := fromYaml (include "skopos.gateway.config" .) -}}
{{- $folder := dig "checkpoints" "folder" "" $config -}}
{{- if or (eq $folder "/var/lib/skopos") (hasPrefix "/var/lib/skopos/" $folder) }}true{{ end }}
{{- end }}

{{- define "skopos.gateway.claims" -}}
{{- $persistence := .Values.gateway.checkpoints.persistence -}}
{{- if and $persistence.enabled (not $persistence.existingClaim) (include "skopos.gateway.volume" .) }}true{{ end }}
{{- end }}

{{- /* A hash of the settings that take effect at the next start (docs/how-to/upgrade.md). The gateway follows changes of all others. */}}
{{- define "skopos.gateway.restart" -}}
{{- $config := fromYaml (include "skopos.gateway.config" .) -}}
{{- $authentication := default dict $config.authentication -}}
{{- $cache := pick (default dict $config.cache) "kinds" "idleStop" "bytesPerCluster" "compressedBytes" "managedFields" -}}
{{- $outbound := pick (default dict $config.outbound) "impersonate" "readOnly" -}}
{{- $loopback := dig "authorization" "loopback" "" $config -}}
{{- $settings := pick $config "listen" "clusters" "checkpoints" "replicas" -}}
{{- list $settings $authentication.clientCertificates (empty $authentication) $cache $outbound $loopback | toJson | sha256sum }}
{{- end }}
