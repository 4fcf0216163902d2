{{- /* A component's name in all of its objects. There is one mesh a namespace, so the release's name stands in none. */ -}}
{{- define "headwater.name" -}}headwater-{{ . }}{{- end -}}

{{- define "headwater.labels" -}}
app.kubernetes.io/name: headwater
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{ include "headwater.selector" . }}
{{- end -}}

{{- /* What tells a component's pods apart; `role` is shared by all readers. */ -}}
{{- define "headwater.selector" -}}
headwater.dev/part-of: mesh
app.kubernetes.io/component: {{ .component }}
headwater.dev/role: {{ .role | default .component }}
{{- end -}}

{{- define "headwater.image" -}}
{{- get .root.Values.images .image | default (printf "%s/headwater-%s:%s" .root.Values.image.registry .image (.root.Values.image.tag | default .root.Chart.AppVersion)) -}}
{{- end -}}

{{- define "headwater.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "headwater.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* With values.development: the image's code in a volume that can be written into; the root file system still cannot. Takes root, image. */ -}}
{{- define "headwater.codeCopy" -}}
initContainers:
  - name: code
    image: {{ include "headwater.image" . }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    # With their times, by which Python knows what it has compiled.
    command: [/bin/sh, -c, "cp -R --preserve=mode,timestamps /app/* /code/"]
    resources: {requests: {cpu: 50m, memory: 32Mi, ephemeral-storage: 64Mi}, limits: {memory: 64Mi, ephemeral-storage: 256Mi}}
    securityContext: {{- include "headwater.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - {name: code, mountPath: /code}
{{- end -}}

{{- define "headwater.codeCommand" -}}
command:
  - /bin/sh
  - -c
  - | {{- .root.Files.Get "development.sh" | nindent 4 }}
  - development.sh
  - python
  - -m
  - {{ get (dict "spark" "spark.jobs.container" "cli" "libs.cli") .image | default (printf "services.%s" (replace "-" "_" .image)) }}
{{- end -}}

{{- /* Whether the chart's own authority makes the certificates: nobody else does. Empty: it does not. */ -}}
{{- define "headwater.ownAuthority" -}}
{{- with .Values.tls -}}
{{- if and .enabled (not .certManager.enabled) (not .secret) (not .secrets) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The names of a component in its certificate: its Service's, in every form. Takes root and component. JSON. */ -}}
{{- define "headwater.hosts" -}}
{{- $name := include "headwater.name" .component -}}
{{- $namespace := .root.Release.Namespace -}}
{{- list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.cluster.local" $name $namespace) | toJson -}}
{{- end -}}

{{- /* The components that answer or call by gRPC. JSON, as {"components": […]}. */ -}}
{{- define "headwater.certified" -}}
{{- $found := concat (list "schema-history" "checkpoint-committer") (include "headwater.callers" . | fromJson).components -}}
{{- dict "components" $found | toJson -}}
{{- end -}}

{{- /* The components that call others. JSON, as {"components": […]}. */ -}}
{{- define "headwater.callers" -}}
{{- $found := list "tenant-operator" -}}
{{- if .Values.sources }}{{ $found = append $found "router" }}{{ end -}}
{{- if .Values.check.enabled }}{{ $found = append $found "check" }}{{ end -}}
{{- range $name, $source := .Values.sources -}}
{{- $found = concat $found (include "headwater.readers" (dict "name" $name "source" $source) | fromJson).names -}}
{{- end -}}
{{- dict "components" $found | toJson -}}
{{- end -}}

{{- /* The Secret with a component's certificate: given, cert-manager's, or of the chart's own authority; empty without TLS. */ -}}
{{- define "headwater.tlsSecret" -}}
{{- $tls := .root.Values.tls -}}
{{- if and $tls.certManager.enabled (not $tls.enabled) -}}
{{- fail "tls.certManager.enabled: has certificates made that nobody would use; set tls.enabled: true too" -}}
{{- end -}}
{{- if and $tls.certManager.enabled (or $tls.secret $tls.secrets) -}}
{{- fail "tls.certManager.enabled: makes every component's Secret, and tls.secret or tls.secrets names one too; leave those empty" -}}
{{- end -}}
{{- if or $tls.certManager.enabled (include "headwater.ownAuthority" .root) -}}
{{- include "headwater.name" .component }}-tls
{{- else if $tls.enabled -}}
{{- $secret := get $tls.secrets (.role | default .component) | default $tls.secret -}}
{{- required (printf "tls.secret, or tls.secrets.%s: names no Secret, and tls is enabled; name one, or set tls.certManager" (.role | default .component)) $secret -}}
{{- end -}}
{{- end -}}

{{- /*
What has cert-manager make a component's certificate, into the Secret that its pods mount. It serves and calls with the same one. Probes
are plain HTTP, so that no certificate is for the loopback.
*/ -}}
{{- define "headwater.certificate" -}}
{{- $name := include "headwater.name" .component -}}
{{- $namespace := .root.Release.Namespace -}}
{{- with .root.Values.tls.certManager -}}
{{- if not .issuerRef.name -}}
{{- fail "tls.certManager.issuerRef.name: is missing; name the Issuer that is to sign, and its kind (Issuer or ClusterIssuer)" -}}
{{- end -}}
{{- if ge (.renewBefore | trimSuffix "h" | int) (.duration | trimSuffix "h" | int) -}}
{{- fail (printf "tls.certManager.renewBefore: %s is no less than duration (%s); a certificate would never be old enough" .renewBefore .duration) -}}
{{- end -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels: {{- include "headwater.labels" $ | nindent 4 }}
spec:
  secretName: {{ $name }}-tls
  # cert-manager leaves Secrets behind: by this label they are found.
  secretTemplate: {labels: {headwater.dev/part-of: mesh}}
  issuerRef: {{- toYaml .issuerRef | nindent 4 }}
  dnsNames: {{- include "headwater.hosts" (pick $ "root" "component") | fromJsonArray | toYaml | nindent 4 }}
  usages: [digital signature, server auth, client auth]
  duration: {{ .duration }}
  renewBefore: {{ .renewBefore }}
  privateKey: {algorithm: ECDSA, size: 256, encoding: PKCS8, rotationPolicy: Always}
{{- end -}}
{{- end -}}

{{- /* The components that connect to Kafka in this release, by their roles. JSON, as {"components": […]}. */ -}}
{{- define "headwater.kafkaComponents" -}}
{{- $found := list "schema-history" "checkpoint-committer" "tenant-operator" -}}
{{- if .Values.sources }}{{ $found = concat $found (list "reader" "router") }}{{ end -}}
{{- if .Values.sink.enabled }}{{ $found = append $found "sink" }}{{ end -}}
{{- if .Values.check.enabled }}{{ $found = append $found "check" }}{{ end -}}
{{- dict "components" $found | toJson -}}
{{- end -}}

{{- /* Passwords of the users that the release makes. Made once: `helm template` cannot look, and makes them again. Takes root, roles and labels. */ -}}
{{- define "headwater.kafkaPasswords" -}}
{{- $there := (lookup "v1" "Secret" .root.Release.Namespace "headwater-kafka-passwords" | default dict).data | default dict }}
apiVersion: v1
kind: Secret
metadata:
  name: headwater-kafka-passwords
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "headwater.labels" .labels | nindent 4 }}
data:
  {{- range .roles }}
  {{ . }}: {{ get $there . | default (randAlphaNum 32 | b64enc) }}
  {{- end }}
{{- end -}}

{{- /*
As whom Kafka knows a component: as itself, or as all. Takes root and role; `admin` is who makes the users. JSON: username, passwordSecret,
certificateSecret, oauth; the last two are there in a mesh alone whose brokers ask for them.
*/ -}}
{{- define "headwater.kafkaUser" -}}
{{- $kafka := .root.Values.kafka -}}
{{- $isMade := and $kafka.usersMadeBy (not $kafka.users) (ne .role "admin") -}}
{{- $own := get $kafka.users .role | default dict -}}
{{- $found := dict -}}
{{- if or .root.Values.trial.kafka.enabled $isMade -}}
{{- $found = dict "username" (printf "headwater-%s" .role) "passwordSecret" (dict "name" "headwater-kafka-passwords" "key" .role) -}}
{{- else if eq .role "admin" -}}
{{- $found = deepCopy $kafka.usersMadeBy -}}
{{- else if $own.username -}}
{{- $found = pick $own "username" "passwordSecret" -}}
{{- else -}}
{{- $found = pick $kafka "username" "passwordSecret" -}}
{{- end -}}
{{- with $own.certificateSecret | default $kafka.certificateSecret -}}
{{- $_ := set $found "certificateSecret" . -}}
{{- end -}}
{{- with $kafka.oauth -}}
{{- $_ := set $found "oauth" (mergeOverwrite (deepCopy .) ($own.oauth | default dict)) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* Refuses what Kafka's clients would leave unused, or would lack. Takes root. */ -}}
{{- define "headwater.kafkaChecked" -}}
{{- with .root.Values.kafka -}}
{{- $isOauth := eq (.saslMechanism | default "") "OAUTHBEARER" -}}
{{- if and $isOauth (not .oauth) -}}
{{- fail "kafka.oauth: is missing, and kafka.saslMechanism is OAUTHBEARER; say where the tokens come from" -}}
{{- end -}}
{{- if and .oauth (not $isOauth) -}}
{{- fail "kafka.oauth: has no effect without kafka.saslMechanism: OAUTHBEARER; set that, or leave it out" -}}
{{- end -}}
{{- if and .usersMadeBy $isOauth -}}
{{- fail "kafka.usersMadeBy: makes users with passwords, and kafka.saslMechanism is OAUTHBEARER; leave it out, and grant the clients their rights" -}}
{{- end -}}
{{- if and $isOauth .username -}}
{{- fail "kafka.username: has no effect with OAUTHBEARER, whose token names the user; leave it out" -}}
{{- end -}}
{{- $certificates := list .certificateSecret -}}
{{- range $role, $user := .users -}}
{{- if and $user.oauth (not $isOauth) -}}
{{- fail (printf "kafka.users.%s.oauth: has no effect without kafka.saslMechanism: OAUTHBEARER; set that, and kafka.oauth" $role) -}}
{{- end -}}
{{- if and $user.username $isOauth -}}
{{- fail (printf "kafka.users.%s.username: has no effect with OAUTHBEARER, whose token names the user; give it `oauth`" $role) -}}
{{- end -}}
{{- if and $.root.Values.kafka.usersMadeBy (not $user.username) -}}
{{- fail (printf "kafka.users.%s: names no user, and kafka.usersMadeBy makes those with passwords alone; name one, or leave usersMadeBy out" $role) -}}
{{- end -}}
{{- $certificates = append $certificates $user.certificateSecret -}}
{{- end -}}
{{- if and (compact $certificates) (not (hasSuffix "SSL" .securityProtocol)) -}}
{{- fail (printf "kafka.certificateSecret: is given, here or in kafka.users, and kafka.securityProtocol %s encrypts nothing; take SSL or SASL_SSL" .securityProtocol) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The files by which a component's pods reach Kafka. Takes root and role. */ -}}
{{- define "headwater.kafkaVolumeMounts" -}}
{{- $user := include "headwater.kafkaUser" . | fromJson -}}
{{- if .root.Values.kafka.caSecret }}
- {name: kafka-ca, mountPath: /etc/headwater/kafka-ca, readOnly: true}
{{- end }}
{{- if $user.certificateSecret }}
- {name: kafka-client, mountPath: /etc/headwater/kafka-client, readOnly: true}
{{- end }}
{{- if ($user.oauth | default dict).caSecret }}
- {name: kafka-tokens-ca, mountPath: /etc/headwater/kafka-tokens-ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "headwater.kafkaVolumes" -}}
{{- $user := include "headwater.kafkaUser" . | fromJson -}}
{{- with .root.Values.kafka.caSecret }}
- name: kafka-ca
  secret: {secretName: {{ .name }}, items: [{key: {{ .key }}, path: ca.pem}]}
{{- end }}
{{- with $user.certificateSecret }}
- name: kafka-client
  secret:
    secretName: {{ .name }}
    defaultMode: 288
    items: [{key: {{ .certificate | default "tls.crt" }}, path: tls.crt}, {key: {{ .key | default "tls.key" }}, path: tls.key}]
{{- end }}
{{- with ($user.oauth | default dict).caSecret }}
- name: kafka-tokens-ca
  secret: {secretName: {{ .name }}, items: [{key: {{ .key }}, path: ca.pem}]}
{{- end }}
{{- end -}}

{{- /* How a component reaches Kafka, as YAML. Takes root and role. */ -}}
{{- define "headwater.kafkaSettings" -}}
{{- include "headwater.kafkaChecked" . -}}
{{- $isTrial := .root.Values.trial.kafka.enabled -}}
{{- $user := include "headwater.kafkaUser" . | fromJson -}}
{{- with .root.Values.kafka -}}
bootstrap_servers: {{ $isTrial | ternary "headwater-kafka:9092" .bootstrapServers | quote }}
security_protocol: {{ $isTrial | ternary "SASL_PLAINTEXT" .securityProtocol }}
{{- with $isTrial | ternary "SCRAM-SHA-512" .saslMechanism }}
sasl_mechanism: {{ . }}
{{- end }}
{{- with $user.username }}
sasl_username: {{ . | quote }}
{{- end }}
{{- with $user.oauth }}
oauth:
  token_url: {{ .tokenUrl | quote }}
  client_id: {{ .clientId | quote }}
  {{- with .scope }}
  scope: {{ . | quote }}
  {{- end }}
  {{- if .caSecret }}
  ca_file: /etc/headwater/kafka-tokens-ca/ca.pem
  {{- end }}
{{- end }}
{{- if .caSecret }}
ssl_ca_file: /etc/headwater/kafka-ca/ca.pem
{{- end }}
{{- if $user.certificateSecret }}
ssl_certificate_file: /etc/headwater/kafka-client/tls.crt
ssl_key_file: /etc/headwater/kafka-client/tls.key
{{- end }}
replication_factor: {{ $isTrial | ternary 1 .replicationFactor }}
{{- end }}
{{- end -}}

{{- define "headwater.redisSettings" -}}
url: {{ .Values.trial.redis.enabled | ternary "redis://headwater-redis:6379/0" .Values.redis.url }}
{{- end -}}

{{- /* Refuses a trial's own server beside what says how another one is reached. Takes chosen (kafka, redis) and what is given of that. */ -}}
{{- define "headwater.trialAlone" -}}
{{- range $name, $value := .given -}}
{{- if and $value (ne (toString $value) "PLAINTEXT") -}}
{{- fail (printf "%s.%s: says how a server of yours is reached, and trial.%s.enabled has one made that knows nothing of it; leave one of them out" $.chosen $name $.chosen) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A rule by which Spark jobs reach a trial's own broker. */ -}}
{{- define "headwater.trialEgress" -}}
{{- if .Values.trial.kafka.enabled -}}
- ports: [{port: mesh, protocol: TCP}]
  to: [{podSelector: {matchLabels: {headwater.dev/part-of: mesh, headwater.dev/role: kafka}}}]
{{- end -}}
{{- end -}}

{{- define "headwater.telemetrySettings" -}}
http_host: 0.0.0.0
http_port: 8080
{{- end -}}

{{- define "headwater.grpcSettings" -}}
host: 0.0.0.0
port: 7000
{{- if .Values.tls.enabled }}
tls_certificate_file: /etc/headwater/tls/tls.crt
tls_key_file: /etc/headwater/tls/tls.key
tls_client_ca_file: /etc/headwater/tls/ca.crt
{{- with include "headwater.clientNames" . | fromJsonArray }}
client_names: {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Whose certificates are let in, as a JSON array; of those that are made for the release, those of the components that call others. Empty: all of the authority. */ -}}
{{- define "headwater.clientNames" -}}
{{- $names := .Values.tls.clientNames -}}
{{- if and (or .Values.tls.certManager.enabled (include "headwater.ownAuthority" .)) (not $names) -}}
{{- range (include "headwater.callers" . | fromJson).components -}}
{{- $names = append $names (printf "%s.%s.svc" (include "headwater.name" .) $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- define "headwater.clientSettings" -}}
address: {{ include "headwater.name" .to }}:7000
{{- if .root.Values.tls.enabled }}
tls_ca_file: /etc/headwater/tls/ca.crt
tls_certificate_file: /etc/headwater/tls/tls.crt
tls_key_file: /etc/headwater/tls/tls.key
{{- end }}
{{- end -}}

{{- /* Passwords, from Secrets into the environment, which wins over the settings file. Takes root, role, secretEnv and redis. */ -}}
{{- define "headwater.secretEnv" -}}
{{- $user := include "headwater.kafkaUser" . | fromJson -}}
{{- with $user.passwordSecret }}
- name: HEADWATER_KAFKA__SASL_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}
{{- with ($user.oauth | default dict).clientSecret }}
- name: HEADWATER_KAFKA__OAUTH__CLIENT_SECRET
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}
{{- if .redis }}
{{- with .root.Values.redis.urlSecret }}
- name: HEADWATER_REDIS__URL
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}
{{- end }}
{{- range $name, $ref := .secretEnv }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $ref.name }}, key: {{ $ref.key }}}}
{{- end }}
{{- end -}}

{{- /* With `development` a service that does not come up is left alone: its container is to be there for the next files. */ -}}
{{- define "headwater.probes" -}}
{{- if not .development -}}
startupProbe:
  # Only whether it answers: what it needs may come later than it.
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ .startupFailures | default 90 }}
livenessProbe:
  # 503 only when a restart would help: no progress is made.
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{ end -}}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- define "headwater.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* values.affinity; else, with `apart`, a component's pods on nodes of their own where there are some. */ -}}
{{- define "headwater.affinity" -}}
{{- if .root.Values.affinity -}}
affinity: {{ toYaml .root.Values.affinity | nindent 2 }}
{{- else if .apart -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "headwater.selector" . | nindent 14 }}
{{- end -}}
{{- end -}}

{{- /* Who is asked what is wrong: every service that answers gRPC, but the caller. JSON, as {"services": […]}. */ -}}
{{- define "headwater.watchedServices" -}}
{{- $found := list -}}
{{- range list "schema-history" "checkpoint-committer" -}}
{{- $found = append $found (dict "name" . "grpc" (include "headwater.clientSettings" (dict "root" $ "to" .) | fromYaml)) -}}
{{- end -}}
{{- if .Values.sources -}}
{{- $found = append $found (dict "name" "router" "has_several" true "grpc" (include "headwater.clientSettings" (dict "root" $ "to" "router") | fromYaml)) -}}
{{- end -}}
{{- range $name, $source := .Values.sources -}}
{{- range (include "headwater.readers" (dict "name" $name "source" $source) | fromJson).names -}}
{{- $found = append $found (dict "name" . "source" $name "grpc" (include "headwater.clientSettings" (dict "root" $ "to" .) | fromYaml)) -}}
{{- end -}}
{{- end -}}
{{- dict "services" $found | toJson -}}
{{- end -}}

{{- /*
What kube-score is not to ask for (`make kube-score`). A tag names one image for good, so it is not asked for at each start; of what owns
its source or its topic there is one, and the old one ends before the new one begins.
*/ -}}
{{- define "headwater.scoreIgnored" -}}
container-image-pull-policy{{ if eq (.strategy | default "") "Recreate" }},deployment-replicas,deployment-strategy{{ end }}
{{- end -}}

{{- /* The components that read a source: one, or one for each of a keyspace's tasks. Takes `name` and `source`; JSON, as {"names": […]}. */ -}}
{{- define "headwater.readers" -}}
{{- $reader := printf "reader-%s" (.name | lower | replace "_" "-") -}}
{{- $tasks := .source.tasks | default 1 | int -}}
{{- $names := list $reader -}}
{{- if gt $tasks 1 -}}
{{- $names = list -}}
{{- range $number := until $tasks }}{{ $names = append $names (printf "%s-%d" $reader $number) }}{{ end -}}
{{- end -}}
{{- dict "names" $names | toJson -}}
{{- end -}}

{{- /*
How many routers an upgrade has to give though the HPA gives them; empty: none. Where the release before gave a number, and this one gives none,
Kubernetes would go down to one router until the HPA has looked. So the number that runs is given, when the HPA is new, and from then on while it
is Helm's: for good with client-side apply; with server-side apply until the HPA has changed it once. Without a cluster (`helm template`) none is given.
*/ -}}
{{- define "headwater.routersGiven" -}}
{{- $router := include "headwater.name" "router" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace $router -}}
{{- if $live -}}
{{- $running := $live.spec.replicas | int -}}
{{- $isGivenUp := false -}}
{{- range $live.metadata.managedFields -}}
{{- if and (eq .operation "Apply") (eq .manager "helm") (not (hasKey (get .fieldsV1 "f:spec") "f:replicas")) }}{{ $isGivenUp = true }}{{ end -}}
{{- end -}}
{{- if not (lookup "autoscaling/v2" "HorizontalPodAutoscaler" .Release.Namespace $router) -}}
{{- max $running (.Values.router.replicas | int) -}}
{{- else if and (hasKey ($live.metadata.annotations | default dict) "headwater.dev/gives-replicas") (not $isGivenUp) -}}
{{- $running -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /*
One service: its settings file, its Deployment, its Service and, with cert-manager, its certificate.

root, component, image, settings (a dict), resources; role, replicas, givesReplicas, strategy, apart, redis, args, secretEnv, grpc, asked (each pod is
asked what is wrong, ready or not: `several` has a name for all of them), account, stateSize, maskKeys (Secrets by tenant), volumes and
volumeMounts are optional.
*/ -}}
{{- define "headwater.service" -}}
{{- $name := include "headwater.name" .component -}}
{{- $tls := include "headwater.tlsSecret" . -}}
{{- $settings := toYaml .settings -}}
{{- $user := dict "root" .root "role" (.role | default .component) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "headwater.labels" . | nindent 4 }}
data:
  settings.yaml: | {{- $settings | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "headwater.labels" . | nindent 4 }}
  annotations:
    kube-score/ignore: {{ include "headwater.scoreIgnored" . | quote }}
    {{- if .givesReplicas }}
    headwater.dev/gives-replicas: "true"
    {{- end }}
spec:
  {{- if hasKey . "replicas" }}
  replicas: {{ .replicas }}
  {{- end }}
  strategy: {type: {{ .strategy | default "RollingUpdate" }}}
  selector:
    matchLabels: {{- include "headwater.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "headwater.labels" . | nindent 8 }}
      annotations:
        # Settings are read once: a change of them starts the pods anew.
        headwater.dev/settings: {{ $settings | sha256sum | trunc 16 | quote }}
        {{- with .root.Values.podAnnotations }}{{ toYaml . | nindent 8 }}{{- end }}
    spec:
      serviceAccountName: {{ .account | default "headwater" }}
      automountServiceAccountToken: {{ eq (.account | default "") $name }}
      # Else Services put HEADWATER_…_SERVICE_HOST into the environment, which are no settings and are refused.
      enableServiceLinks: false
      terminationGracePeriodSeconds: 15
      securityContext: {{- include "headwater.podSecurity" . | nindent 8 }}
      {{- include "headwater.placement" .root | nindent 6 }}
      {{- with include "headwater.affinity" . }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- if .root.Values.development }}
      {{- include "headwater.codeCopy" . | nindent 6 }}
      {{- end }}
      containers:
        - name: {{ .image }}
          image: {{ include "headwater.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          {{- if .root.Values.development }}
          {{- include "headwater.codeCommand" . | nindent 10 }}
          {{- end }}
          args: {{ .args | default (list "--settings" "/etc/headwater/settings/settings.yaml") | toJson }}
          env:
            - {name: HEADWATER_TERMINATION_LOG, value: /dev/termination-log}
            - {name: HEADWATER_FAULTS_FILE, value: /var/lib/headwater/faults.json}
            {{- with include "headwater.secretEnv" (merge (dict "role" (.role | default .component)) .) | trim }}
            {{- . | nindent 12 }}
            {{- end }}
          ports:
            - {name: http, containerPort: 8080}
            {{- if .grpc }}
            - {name: grpc, containerPort: 7000}
            {{- end }}
          {{- include "headwater.probes" (dict "development" .root.Values.development) | nindent 10 }}
          resources: {{- toYaml .resources | nindent 12 }}
          securityContext: {{- include "headwater.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: settings, mountPath: /etc/headwater/settings, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            - {name: state, mountPath: /var/lib/headwater}
            {{- if .root.Values.development }}
            - {name: code, mountPath: /app}
            {{- end }}
            {{- if $tls }}
            - {name: tls, mountPath: /etc/headwater/tls, readOnly: true}
            {{- end }}
            {{- with include "headwater.kafkaVolumeMounts" $user | trim }}{{- . | nindent 12 }}{{- end }}
            {{- with .volumeMounts }}{{ toYaml . | nindent 12 }}{{- end }}
            {{- range $tenant, $_ := .maskKeys }}
            - {name: keys-{{ $tenant }}, mountPath: /etc/headwater/keys/{{ $tenant }}, readOnly: true}
            {{- end }}
      volumes:
        - name: settings
          configMap: {name: {{ $name }}}
        - name: tmp
          emptyDir: {sizeLimit: 256Mi}
        - name: state
          emptyDir: {sizeLimit: {{ .stateSize | default "1Gi" }}}
        {{- if .root.Values.development }}
        - name: code
          emptyDir: {sizeLimit: 256Mi}
        {{- end }}
        {{- if $tls }}
        - name: tls
          secret: {secretName: {{ $tls }}, defaultMode: 288}
        {{- end }}
        {{- with include "headwater.kafkaVolumes" $user | trim }}{{- . | nindent 8 }}{{- end }}
        {{- with .volumes }}{{ toYaml . | nindent 8 }}{{- end }}
        {{- /* Optional: one that is away is that tenant's mistake, and must not keep the others' pods from starting. */}}
        {{- range $tenant, $secret := .maskKeys }}
        - name: keys-{{ $tenant }}
          secret: {secretName: {{ $secret }}, optional: true, defaultMode: 288}
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "headwater.labels" . | nindent 4 }}
spec:
  {{- if or (not .grpc) (eq (.asked | default "") "several") }}
  clusterIP: None
  {{- end }}
  {{- if .asked }}
  # One that is not ready says why.
  publishNotReadyAddresses: true
  {{- end }}
  selector: {{- include "headwater.selector" . | nindent 4 }}
  ports:
    - {name: http, port: 8080, targetPort: http}
    {{- if .grpc }}
    - {name: grpc, port: 7000, targetPort: grpc}
    {{- end }}
{{- if .root.Values.tls.certManager.enabled }}
---
{{ include "headwater.certificate" . }}
{{- end }}
{{- end -}}

{{- /* How many pods of a component may be evicted at once. Takes `budget`, its values; nothing where they have no number. */ -}}
{{- define "headwater.budget" -}}
{{- if not (kindIs "invalid" .budget.maxUnavailable) -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "headwater.name" .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "headwater.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .budget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "headwater.selector" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- /*
The Secrets with tenants' passwords by namespace, where the operator looks at these alone: in the release's own namespace always, since the mesh's
passwords and keys are there too, and in those that the values name. JSON, as {"team-acme": ["acme-kafka"]}.
*/ -}}
{{- define "headwater.tenantSecrets" -}}
{{- $found := deepCopy .Values.tenantOperator.tenantSecrets -}}
{{- $watched := (include "headwater.tenantNamespaces" . | fromJson).namespaces -}}
{{- range $namespace, $_ := $found -}}
{{- if not (has $namespace $watched) -}}
{{- fail (printf "tenantOperator.tenantSecrets.%s: the namespace is not watched; name it in tenantOperator.tenantNamespaces" $namespace) -}}
{{- end -}}
{{- end -}}
{{- $own := .Release.Namespace -}}
{{- if has $own $watched -}}
{{- $names := get $found $own | default list -}}
{{- range $name, $tenant := .Values.tenants -}}
{{- if eq ($tenant.namespace | default $own) $own }}{{ $names = append $names ($tenant.kafkaSecret | default (printf "%s-kafka" $name)) }}{{ end -}}
{{- end -}}
{{- $_ := set $found $own ($names | uniq | sortAlpha) -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{- /* Where tenants are looked for, as {"namespaces": […]}; none: everywhere, which somebody has asked for. */ -}}
{{- define "headwater.tenantNamespaces" -}}
{{- $named := .Values.tenantOperator.tenantNamespaces -}}
{{- if .Values.tenantOperator.watchAnyNamespace -}}
{{- if $named }}{{ fail "tenantOperator.watchAnyNamespace: tenantNamespaces names namespaces too; leave one of the two out" }}{{ end -}}
{{- dict "namespaces" list | toJson -}}
{{- else -}}
{{- dict "namespaces" ($named | default (list .Release.Namespace)) | toJson -}}
{{- end -}}
{{- end }}
