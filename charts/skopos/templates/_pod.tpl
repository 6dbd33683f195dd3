{{- /* What the pods of both components have. Called with `context`, `values` and `component`. */}}
{{- define "skopos.pod" -}}
{{- $values := .values -}}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
# No SKOPOS_* variables of Services: the program reads variables of this prefix.
enableServiceLinks: false
{{- with .context.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else if gt (int $values.replicas) 1 }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "skopos.selector" (list .context .component) | nindent 6 }}
{{- end }}
{{- end }}
