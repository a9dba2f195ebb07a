{{- /* Labels and names that all roles share. */ -}}

{{- define "kintsugi.labels" -}}
app.kubernetes.io/name: kintsugi
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kintsugi.workers" -}}
{{ int (dig "workers" 4 .Values.run) }}
{{- end -}}

{{- define "kintsugi.servers" -}}
{{ int (dig "servers" 2 .Values.run) }}
{{- end -}}

{{- define "kintsugi.store" -}}
{{ .Values.store | default (printf "memory://%s-memory:9400/%s" .Release.Name .Release.Name) }}
{{- end -}}

{{- define "kintsugi.etcd" -}}
{{ if .Values.etcd.endpoints }}{{ join "," .Values.etcd.endpoints }}{{ else }}{{ .Release.Name }}-etcd:2379{{ end }}
{{- end -}}

{{- /* The arguments of a process of the run. Takes a dict of root and role. */ -}}
{{- define "kintsugi.args" -}}
- {{ .role }}
- --config=/etc/kintsugi/run.yaml
- --run={{ .root.Release.Name }}
- --etcd={{ include "kintsugi.etcd" .root }}
- --etcd-wait=10m
- --store={{ include "kintsugi.store" .root }}
{{- if .root.Values.tls }}
- --tls=/tls
{{- end }}
{{- end -}}

{{- /* What to do about a role's exit status: 75 is a hand-over, and 65 and 78 would only happen again. Takes the action for the latter two. A pod that its node removes has not failed either. */ -}}
{{- define "kintsugi.statuses" -}}
rules:
- action: Ignore
  onPodConditions:
  - type: DisruptionTarget
- action: Ignore
  onExitCodes: {operator: In, values: [75]}
- action: {{ . }}
  onExitCodes: {operator: In, values: [65, 78]}
{{- end -}}

{{- /* The pod of a role. Takes a dict of root, role, pod (values of the role) and args, and optionally env, ports, mounts, volumes and probes. */ -}}
{{- define "kintsugi.pod" -}}
{{- $pod := .pod | default dict -}}
metadata:
  labels:
    {{- include "kintsugi.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
    {{- with $pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $pod.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: {{ .restart | default "Never" }}
  {{- $stays := has .role (list "etcd" "memory") }}
  terminationGracePeriodSeconds: {{ if $stays }}{{ add .root.Values.grace 10 }}{{ else }}{{ .root.Values.grace }}{{ end }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .root.Values.pullSecrets }}
  imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  {{- if has .role (list "server" "etcd" "coordinator") }}
  topologySpreadConstraints: # one takes over from the other, so they must not die together
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "kintsugi.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
  {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" "serviceAccountName" }}
  {{- with index $pod $key }}
  {{ $key }}: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  containers:
  - name: {{ .role }}
    image: {{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
    {{- .args | nindent 4 }}
    env:
    - {name: HOME, value: /tmp}
    - {name: KINTSUGI_DATA, value: /data}
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- with .env }}{{ . | nindent 4 }}{{ end }}
    {{- with $pod.env }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- $secrets := list }}
    {{- if has .role (list "coordinator" "server") }}{{ $secrets = append $secrets .root.Values.storeSecret }}{{ end }}
    {{- if has .role (list "coordinator" "server" "worker" "monitor") }}{{ $secrets = append $secrets .root.Values.etcd.secret }}{{ end }}
    {{- with compact $secrets }}
    envFrom:
    {{- range . }}
    - secretRef: {name: {{ . }}}
    {{- end }}
    {{- end }}
    {{- with .ports }}
    ports:
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $pod.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if $stays }}
    lifecycle: # others that must go at the same time still need this pod to hand over
      preStop: {sleep: {seconds: {{ .root.Values.grace }}}}
    {{- end }}
    {{- with .probes }}{{ . | nindent 4 }}{{ end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
    - {name: run, mountPath: /etc/kintsugi}
    - {name: tmp, mountPath: /tmp}
    {{- if .root.Values.data }}
    - {name: data, mountPath: /data}
    {{- end }}
    {{- if .root.Values.tls }}
    - {name: tls, mountPath: /tls, readOnly: true}
    {{- end }}
    {{- with .mounts }}{{ . | nindent 4 }}{{ end }}
  volumes:
  - name: run
    configMap: {name: {{ .root.Release.Name }}-run}
  - name: tmp
    emptyDir: {}
  {{- with .root.Values.data }}
  - name: data
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .root.Values.tls }}
  - name: tls
    secret:
      secretName: {{ .root.Values.tls }}
      defaultMode: 0440
      items: # only its own certificate
      {{- include "kintsugi.certificates" . | nindent 6 }}
  {{- end }}
  {{- with .volumes }}{{ . | nindent 2 }}{{ end }}
{{- end -}}

{{- /* The certificates that a role may have: its own, and for servers those of their places, by which they are known at any address. */ -}}
{{- define "kintsugi.certificates" -}}
{{- $role := .role -}}
{{- if eq $role "monitor" }}{{ $role = "operator" }}{{ end -}}
{{- $places := list $role -}}
{{- if eq $role "server" -}}
{{- $places = list -}}
{{- range $i := until (include "kintsugi.servers" .root | int) }}{{ $places = append $places (printf "server/%d" $i) }}{{ end -}}
{{- end -}}
{{- range $i, $place := $places }}
{{- range $j, $file := list "ca.pem" "cert.pem" "key.pem" }}
{{- if or $i $j }}{{ "\n" }}{{ end -}}
- key: {{ $place | replace "/" "." }}.{{ $file }}
  path: {{ $place }}/{{ $file }}
{{- end }}
{{- end }}
{{- end -}}
