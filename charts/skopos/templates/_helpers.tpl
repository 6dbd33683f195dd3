{{- /* Names. */}}
{{- define "skopos.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "skopos.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "skopos.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "skopos.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "skopos.gateway.name" -}}
{{ include "skopos.fullname" . }}-gateway
{{- end }}

{{- define "skopos.notify.name" -}}
{{ include "skopos.fullname" . }}-notify
{{- end }}

{{- define "skopos.gateway.serviceAccount" -}}
{{- if .Values.gateway.serviceAccount.create }}
{{- default (include "skopos.gateway.name" .) .Values.gateway.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.gateway.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "skopos.notify.serviceAccount" -}}
{{- if .Values.notify.serviceAccount.create }}
{{- default (include "skopos.notify.name" .) .Values.notify.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.notify.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* Labels. Called with a list of the context and the component. */}}
{{- define "skopos.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: {{ include "skopos.name" $context }}
app.kubernetes.io/instance: {{ $context.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "skopos.labels" -}}
{{- $context := index . 0 -}}
{{ include "skopos.selector" . }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $context.Chart.Name $context.Chart.Version | replace "+" "_" }}
{{- with $context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Labels of pods. Without the chart's version, so that a new version of the chart alone replaces no pod. */}}
{{- define "skopos.pod.labels" -}}
{{- $context := index . 0 -}}
{{ include "skopos.selector" . }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
{{- with $context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "skopos.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* Returns "true" if a feature is on. Called with a list of its value, and of what `auto` means. */}}
{{- define "skopos.feature" -}}
{{- $value := index . 0 -}}
{{- if eq (toString $value) "auto" }}{{ if index . 1 }}true{{ end }}{{ else if $value }}true{{ end }}
{{- end }}

{{- /* Returns the port of ADDRESS:PORT. */}}
{{- define "skopos.port" -}}
{{- regexFind "[0-9]+$" (toString .) }}
{{- end }}

{{- /* The security context of a container: the restricted profile. */}}
{{- define "skopos.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "skopos.pod.security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
# With Always a kubelet makes all files of a claim writable for the group at each start, and the gateway does not start with such files.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* Returns the second map with the values of the first in place of its own. (`merge` of Sprig takes false and 0 for absent.) */}}
{{- define "skopos.overlay" -}}
{{- $all := deepCopy (index . 1) -}}
{{- range $key, $value := index . 0 }}{{ $_ := set $all $key $value }}{{ end -}}
{{- toYaml $all }}
{{- end }}

{{- /* The specification of a claim. Called with the values of `persistence`. */}}
{{- define "skopos.claim" -}}
accessModes:
{{- toYaml .accessModes | nindent 2 }}
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end }}
