{{- /* A ClusterRole with `rules`, and a Role for each namespace of `byNamespace`, all bound to `account`. A name of a ClusterRole has the
       release's namespace in it, because two releases of one name may be in two namespaces. */}}
{{- define "skopos.roles" -}}
{{- $context := .context -}}
{{- $labels := include "skopos.labels" (list $context .component) -}}
{{- $name := .name -}}
{{- $account := .account -}}
{{- with .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $context.Release.Namespace }}-{{ $name }}
  labels:
    {{- $labels | nindent 4 }}
rules:
{{- toYaml . | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $context.Release.Namespace }}-{{ $name }}
  labels:
    {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $context.Release.Namespace }}-{{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $account }}, namespace: {{ $context.Release.Namespace }}}
{{- end }}
{{- range $namespace, $rules := .byNamespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $context.Release.Namespace }}-{{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
rules:
{{- toYaml ($rules | uniq) | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $context.Release.Namespace }}-{{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $context.Release.Namespace }}-{{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $account }}, namespace: {{ $context.Release.Namespace }}}
{{- end }}
{{- end }}
