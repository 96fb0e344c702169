{{- define "corridor.labels" -}}
app.kubernetes.io/name: corridor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "corridor.selector" -}}
app.kubernetes.io/name: corridor
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "corridor.fullname" -}}
{{ printf "%s-%s" .root.Release.Name .name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "corridor.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* Helm reads 1000000 as a number and would write it as 1e+06. */}}
{{- define "corridor.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . | quote }}{{ else }}{{ . | quote }}{{ end }}
{{- end }}

{{- define "corridor.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "corridor.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Variables that name a mounted file: NAME_FILE for each `NAME: file` of the process. */}}
{{- define "corridor.secretEnv" -}}
{{- range $variable, $file := . }}
- name: {{ $variable }}_FILE
  value: /run/secrets/{{ $file }}
{{- end }}
{{- end }}

{{/* How the API, the workers and nothing else reach Temporal. */}}
{{- define "corridor.temporalEnv" -}}
- name: TEMPORAL_ADDRESS
  value: {{ required "temporal.address: expected host:port" .Values.temporal.address | quote }}
- name: TEMPORAL_NAMESPACE
  value: {{ .Values.temporal.namespace | quote }}
{{- with .Values.temporal.tls }}
{{- if .enabled }}
- name: TEMPORAL_TLS
  value: "true"
{{- with .serverName }}
- name: TEMPORAL_TLS_SERVER_NAME
  value: {{ . | quote }}
{{- end }}
{{- if .secret }}
{{- range $variable, $file := dict "CA" .ca "CERT" .cert "KEY" .key }}
{{- if $file }}
- name: TEMPORAL_TLS_{{ $variable }}_FILE
  value: /run/temporal/{{ $file }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.temporal.apiKeySecret }}
- name: TEMPORAL_API_KEY
  valueFrom:
    secretKeyRef: { name: {{ . }}, key: TEMPORAL_API_KEY }
{{- end }}
{{- end }}

{{/* What the API and the workers have in common. */}}
{{- define "corridor.sharedEnv" -}}
- name: DATABASE_POOL_SIZE
  value: {{ .Values.databasePoolSize | quote }}
- name: RATE_MAXIMUM_AGE_HOURS
  value: {{ .Values.rates.maximumAgeHours | quote }}
- name: METRICS_HOST
  value: 0.0.0.0
- name: METRICS_PORT
  value: "9464"
- name: LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
{{ include "corridor.temporalEnv" . }}
{{- end }}

{{/* The files of a process that /run/secrets has. */}}
{{- define "corridor.secretVolume" -}}
- name: secrets
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      {{- range $file := values .files | sortAlpha }}
      - { key: {{ $file }}, path: {{ $file }} }
      {{- end }}
{{- end }}

{{/* A process that stays: `workload` is a dict of root, name, values, command, files, secret and env. */}}
{{- define "corridor.deployment" -}}
{{- $root := .root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "corridor.fullname" . }}
  labels:
    {{- include "corridor.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  {{- if not .isScaled }}
  replicas: {{ .replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  # The new one is ready before an old one is asked to stop.
  strategy:
    type: RollingUpdate
    rollingUpdate: { maxSurge: 1, maxUnavailable: 0 }
  selector:
    matchLabels:
      {{- include "corridor.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "corridor.selector" . | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      # A process finishes what it has within 25 seconds of SIGTERM.
      terminationGracePeriodSeconds: {{ add 30 (.stopNoticeSeconds | default 0) }}
      securityContext:
        {{- include "corridor.podSecurity" $root | nindent 8 }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      # Spread, so that the loss of a node leaves others.
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "corridor.selector" . | nindent 14 }}
      containers:
        - name: {{ .name }}
          image: {{ include "corridor.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: {{ toJson .command }}
          securityContext:
            {{- include "corridor.containerSecurity" $root | nindent 12 }}
          env:
            {{- include "corridor.secretEnv" .files | trim | nindent 12 }}
            {{- .env | trim | nindent 12 }}
            {{- if and $root.Values.database.caSecret (hasKey .files "DATABASE_URL") }}
            - { name: NODE_EXTRA_CA_CERTS, value: /run/database/ca.crt }
            {{- end }}
            {{- range $variable, $value := .more }}
            - name: {{ $variable }}
              value: {{ include "corridor.text" $value }}
            {{- end }}
          ports:
            {{- range $name, $port := .ports }}
            - { name: {{ $name }}, containerPort: {{ $port }} }
            {{- end }}
          {{- with .probe }}
          startupProbe:
            httpGet: { path: /livez, port: {{ .port }} }
            periodSeconds: 2
            # A worker waits for Temporal's search attributes for up to 30 s.
            failureThreshold: 45
          livenessProbe:
            httpGet: { path: /livez, port: {{ .port }} }
            periodSeconds: 10
            timeoutSeconds: 5
          readinessProbe:
            httpGet: { path: {{ .ready }}, port: {{ .port }} }
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 2
          {{- end }}
          resources:
            {{- toYaml .resources | nindent 12 }}
          volumeMounts:
            - { name: secrets, mountPath: /run/secrets, readOnly: true }
            - { name: tmp, mountPath: /tmp }
            {{- if and $root.Values.database.caSecret (hasKey .files "DATABASE_URL") }}
            - { name: database, mountPath: /run/database, readOnly: true }
            {{- end }}
            {{- if and .usesTemporal $root.Values.temporal.tls.enabled $root.Values.temporal.tls.secret }}
            - { name: temporal, mountPath: /run/temporal, readOnly: true }
            {{- end }}
      volumes:
        {{- include "corridor.secretVolume" . | nindent 8 }}
        - name: tmp
          emptyDir: { sizeLimit: 64Mi }
        {{- if and $root.Values.database.caSecret (hasKey .files "DATABASE_URL") }}
        - name: database
          secret: { secretName: {{ $root.Values.database.caSecret }}, defaultMode: 0440 }
        {{- end }}
        {{- if and .usesTemporal $root.Values.temporal.tls.enabled $root.Values.temporal.tls.secret }}
        - name: temporal
          secret: { secretName: {{ $root.Values.temporal.tls.secret }}, defaultMode: 0440 }
        {{- end }}
{{- end }}

{{- define "corridor.codecEnv" }}
- name: CODEC_HOST
  value: 0.0.0.0
- name: CODEC_PORT
  value: "8081"
- name: CODEC_UI_ORIGIN
  value: {{ required "codec.uiOrigin: expected the origin of the Temporal UI" .Values.codec.uiOrigin | quote }}
{{- end }}

{{- define "corridor.signInEnv" }}
- name: SIGN_IN_HOST
  value: 0.0.0.0
- name: SIGN_IN_PORT
  value: "8082"
- name: OIDC_ISSUER
  value: {{ required "signIn.issuer: expected the issuer of the OpenID provider" .Values.signIn.issuer | quote }}
- name: OIDC_CLIENT_ID
  value: {{ required "signIn.clientId: expected the id of the client" .Values.signIn.clientId | quote }}
- name: OIDC_IDENTITY_CLAIM
  value: {{ .Values.signIn.identityClaim | quote }}
- name: SIGN_IN_HOURS
  value: {{ .Values.signIn.hours | quote }}
{{- end }}
