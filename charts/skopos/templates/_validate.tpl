{{- /* Refuses values that cannot work, all at once. values.schema.json refuses unknown keys and wrong types before. */}}
{{- define "skopos.validate" -}}
{{- $problems := list -}}
{{- $gateway := .Values.gateway -}}
{{- $notify := .Values.notify -}}
{{- if not (or $gateway.enabled $notify.enabled) -}}
{{- $problems = append $problems "gateway.enabled and notify.enabled are both false, so nothing is installed: enable one of them" -}}
{{- end -}}
{{- if $gateway.enabled -}}
{{- $config := $gateway.config -}}
{{- $tls := $gateway.tls -}}
{{- if and $tls.existingSecret $tls.certManager.enabled -}}
{{- $problems = append $problems "gateway.tls.existingSecret and gateway.tls.certManager.enabled are both set, and only one can give the certificate: remove one of them" -}}
{{- end -}}
{{- if and $tls.certManager.enabled (not $tls.certManager.issuerRef.name) -}}
{{- $problems = append $problems "gateway.tls.certManager.enabled needs an issuer: set gateway.tls.certManager.issuerRef.name" -}}
{{- end -}}
{{- if and (or $tls.existingSecret $tls.certManager.enabled) (dig "listen" "tls" "" $config) -}}
{{- $problems = append $problems "gateway.config.listen.tls names its own files, so the certificate of gateway.tls is not used: remove one of them" -}}
{{- end -}}
{{- with dig "listen" "address" "" $config -}}
{{- if regexMatch "^(127\\.|localhost|\\[::1\\])" . -}}
{{- $problems = append $problems (printf "gateway.config.listen.address is %s, which neither the Service nor the probes reach: use 0.0.0.0:6443, or leave it out" .) -}}
{{- else if not (regexMatch ":[1-9][0-9]*$" .) -}}
{{- $problems = append $problems (printf "gateway.config.listen.address is %s, and the Service needs a fixed port: use 0.0.0.0:6443, or leave it out" .) -}}
{{- end -}}
{{- end -}}
{{- if and $config.clusters (not $config.authentication) -}}
{{- $problems = append $problems "gateway.config.clusters is set without gateway.config.authentication, and the gateway does not serve beyond its pod without it: set authentication.tokenReview, authentication.oidc or authentication.clientCertificates" -}}
{{- end -}}
{{- if and $config.authentication (not $config.clusters) -}}
{{- $problems = append $problems "gateway.config.authentication is set without gateway.config.clusters, so there is nothing to serve: set clusters too; for this cluster and its virtual clusters: clusters.vclusters: [{host: {name: host}}]" -}}
{{- end -}}
{{- $persistence := $gateway.checkpoints.persistence -}}
{{- $folder := dig "checkpoints" "folder" "" $config -}}
{{- $bucket := dig "checkpoints" "bucket" "" $config -}}
{{- if and $persistence.enabled (not $gateway.checkpoints.enabled) (not $folder) -}}
{{- $problems = append $problems "gateway.checkpoints.persistence.enabled is set, and gateway.checkpoints.enabled is false, so the claim would stay empty: change one of them" -}}
{{- end -}}
{{- if and $persistence.enabled $bucket -}}
{{- $problems = append $problems "gateway.checkpoints.persistence.enabled is set, and gateway.config.checkpoints.bucket stores the checkpoints in a bucket, so the claim would stay empty: remove one of them" -}}
{{- end -}}
{{- if and $persistence.enabled $folder (ne $folder "/var/lib/skopos") (not (hasPrefix "/var/lib/skopos/" $folder)) -}}
{{- $problems = append $problems (printf "gateway.config.checkpoints.folder is %s, and the claim is mounted at /var/lib/skopos: leave the folder out" $folder) -}}
{{- end -}}
{{- if and $persistence.enabled $persistence.existingClaim (gt (int $gateway.replicas) 1) -}}
{{- $problems = append $problems (printf "gateway.replicas is %d with one claim (gateway.checkpoints.persistence.existingClaim), and one gateway at a time may use a folder: use one replica, or leave existingClaim out, so that each replica gets its own claim" (int $gateway.replicas)) -}}
{{- end -}}
{{- if and $persistence.enabled (eq "Always" (toString $gateway.podSecurityContext.fsGroupChangePolicy)) -}}
{{- $problems = append $problems "gateway.podSecurityContext.fsGroupChangePolicy is Always, with which a kubelet makes the checkpoints writable for their group at each start, and the gateway does not start with such files: use OnRootMismatch, or leave it out" -}}
{{- end -}}
{{- if and $bucket (gt (int $gateway.replicas) 1) -}}
{{- $problems = append $problems (printf "gateway.replicas is %d with gateway.config.checkpoints.bucket, and each gateway needs a prefix of its own: use one replica, a release for each prefix, or gateway.checkpoints.persistence" (int $gateway.replicas)) -}}
{{- end -}}
{{- if and $gateway.continueKeys.existingSecret (dig "replicas" "continueKeys" "" $config) -}}
{{- $problems = append $problems "gateway.config.replicas.continueKeys names its own file, so the keys of gateway.continueKeys.existingSecret are not used: remove one of them" -}}
{{- end -}}
{{- if and $gateway.podMonitor.enabled (not $gateway.podMonitor.authorization) (not $gateway.podMonitor.tlsConfig) -}}
{{- $problems = append $problems "gateway.podMonitor.enabled needs the credentials of an observer, because /metrics answers observers only: set gateway.podMonitor.authorization (a token) or gateway.podMonitor.tlsConfig (a client certificate), and gateway.config.authorization.observers" -}}
{{- end -}}
{{- if and $gateway.podMonitor.enabled (not (dig "authorization" "observers" "" $config)) -}}
{{- $problems = append $problems "gateway.podMonitor.enabled is set, and gateway.config.authorization.observers names no caller that may read /metrics: add the user of the credentials" -}}
{{- end -}}
{{- if and $gateway.pdb.enabled $gateway.pdb.minAvailable (eq (toString $gateway.pdb.minAvailable) (toString $gateway.replicas)) -}}
{{- $problems = append $problems "gateway.pdb.minAvailable is the number of replicas, so that no node can be drained: use a smaller one, or gateway.pdb.maxUnavailable" -}}
{{- end -}}
{{- end -}}
{{- if $notify.enabled -}}
{{- $config := $notify.config -}}
{{- if not $config.sinks -}}
{{- $problems = append $problems "notify.enabled is set, and notify.config.sinks has no sink: add one (docs/reference/notify-config.md)" -}}
{{- end -}}
{{- range $sink := default list $config.sinks -}}
{{- if and $sink.ipvs (not $notify.ipvs.enabled) -}}
{{- $problems = append $problems (printf "the sink %s is of IPVS, and needs NET_ADMIN and the network of its node: set notify.ipvs.enabled" $sink.name) -}}
{{- end -}}
{{- if and (or $sink.haproxy $sink.ipvs) (gt (int $notify.replicas) 1) -}}
{{- $problems = append $problems (printf "notify.replicas is %d, and the sink %s is of one machine: use one replica, and a release with a nodeSelector for each machine" (int $notify.replicas) $sink.name) -}}
{{- end -}}
{{- end -}}
{{- with $config.listen -}}
{{- if regexMatch "^(127\\.|localhost|\\[::1\\])" . -}}
{{- $problems = append $problems (printf "notify.config.listen is %s, which the probes do not reach: use 0.0.0.0:9911, or leave it out" .) -}}
{{- else if not (regexMatch ":[1-9][0-9]*$" .) -}}
{{- $problems = append $problems (printf "notify.config.listen is %s, and the probes need a fixed port: use 0.0.0.0:9911, or leave it out" .) -}}
{{- end -}}
{{- end -}}
{{- $folder := dig "state" "folder" "/var/lib/skopos/notify" $config -}}
{{- if and $notify.state.persistence.enabled (ne $folder "/var/lib/skopos") (not (hasPrefix "/var/lib/skopos/" $folder)) -}}
{{- $problems = append $problems (printf "notify.config.state.folder is %s, and the volume is mounted at /var/lib/skopos: leave the folder out" $folder) -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n- %s\n" (join "\n- " $problems)) -}}
{{- end -}}
{{- end }}
