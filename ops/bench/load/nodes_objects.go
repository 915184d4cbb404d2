package main

// The objects of mode nodes, with realistic sizes and fields, and their creation.

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// inParallel calls part with 0 … count-1, atOnce at a time, and returns the first error.
func inParallel(count, atOnce int, part func(i int) error) error {
	var group sync.WaitGroup
	work := make(chan int)
	problems := make(chan error, atOnce)
	for range min(atOnce, count) {
		group.Add(1)
		go func() {
			defer group.Done()
			var failed error
			for i := range work {
				if failed == nil {
					failed = part(i)
				}
			}
			if failed != nil {
				problems <- failed
			}
		}()
	}
	for i := range count {
		work <- i
	}
	close(work)
	group.Wait()
	close(problems)
	return <-problems
}

// fill creates nodes, their Leases, and pods that run on them.
func (k *cluster) fill() error {
	for i := range nodesOptions.nodes {
		k.nodes = append(k.nodes, &node{cluster: k, name: fmt.Sprintf("node-%s-%05d", nodesOptions.name, i), bound: map[string]time.Time{}, leaving: map[string]bool{}})
	}
	if nodesOptions.existing {
		return nil // each node lists its pods later
	}
	if err := k.awaitServiceAccount(); err != nil {
		return err
	}
	free := make(chan *conn, 16)
	for range cap(free) {
		c, err := k.o.target.dial()
		if err != nil {
			return err
		}
		defer c.close()
		free <- c
	}
	return inParallel(len(k.nodes), cap(free), func(i int) error {
		c := <-free
		defer func() { free <- c }()
		return k.nodes[i].fill(c)
	})
}

// awaitServiceAccount waits for the default ServiceAccount, which a controller creates: without it, pods are rejected.
func (k *cluster) awaitServiceAccount() error {
	c, err := k.o.target.dial()
	if err != nil {
		return err
	}
	defer c.close()
	path := "/api/v1/namespaces/" + k.o.namespace + "/serviceaccounts/default"
	for until := time.Now().Add(drainTimeout); ; time.Sleep(50 * time.Millisecond) {
		status, _, err := c.exchange(k.o.target.render(nil, "GET", path, "", nil))
		if err != nil || status == 200 {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("namespace %s has no default service account: status %d", k.o.namespace, status)
		}
	}
}

func (n *node) fill(c *conn) error {
	t := n.cluster.o.target
	send := func(method, path, content string, body []byte) ([]byte, error) {
		status, answer, err := c.exchange(t.renderAs(method, path, content, body))
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("%s %s: %d %.300s", method, path, status, answer)
		}
		return answer, err
	}
	now := time.Now()
	answer, err := send("POST", "/api/v1/nodes", asJSON, nodeBody(n.name))
	if err != nil {
		return err
	}
	var made struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(answer, &made); err != nil {
		return err
	}
	n.uid = made.Metadata.UID
	if _, err = send("PATCH", "/api/v1/nodes/"+n.name+"/status", asMerge, nodeStatus(now)); err != nil {
		return err
	}
	if _, err = send("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", asJSON, leaseBody(n, now)); err != nil {
		return err
	}
	for i := range nodesOptions.pods {
		name := n.pod(i)
		path := n.cluster.podPath(name)
		if answer, err = send("POST", strings.TrimSuffix(path, "/"+name), asJSON, podBody(n.cluster.o.namespace, name, n.name)); err != nil {
			return err
		}
		if err := json.Unmarshal(answer, &made); err != nil {
			return err
		}
		if _, err = send("PATCH", path+"/status", asMerge, podStatus(n, object{name: name, uid: made.Metadata.UID}, "Running", now)); err != nil {
			return err
		}
		n.pods = append(n.pods, name)
	}
	return nil
}

// pod returns the name of the i-th first pod.
func (n *node) pod(i int) string { return fmt.Sprintf("%s-%03d", n.name, i) }

// renderAs is render with another content type.
func (t *target) renderAs(method, path, content string, body []byte) []byte {
	request := string(t.render(nil, method, path, "", body))
	return []byte(strings.Replace(request, "Content-Type: "+asJSON, "Content-Type: "+content, 1))
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func nodeBody(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"labels":{"beta.kubernetes.io/arch":"amd64",`+
		`"beta.kubernetes.io/os":"linux","kubernetes.io/arch":"amd64","kubernetes.io/os":"linux","kubernetes.io/hostname":%q,`+
		`"node.kubernetes.io/instance-type":"m5.xlarge","topology.kubernetes.io/region":"r1","topology.kubernetes.io/zone":"r1a"},`+
		`"annotations":{"node.alpha.kubernetes.io/ttl":"0","volumes.kubernetes.io/controller-managed-attach-detach":"true"}},`+
		`"spec":{"podCIDR":"10.0.0.0/24","providerID":"bench:///%s"}}`, name, name, name)
}

// nodeConditions returns the patch of a kubelet when only the time has changed.
func nodeConditions(at time.Time) []byte {
	return fmt.Appendf(nil, `{"status":{%s}}`, conditionsAt(at))
}

func conditionsAt(at time.Time) string {
	var conditions []string
	for _, of := range [][3]string{
		{"MemoryPressure", "False", "KubeletHasSufficientMemory"}, {"DiskPressure", "False", "KubeletHasNoDiskPressure"},
		{"PIDPressure", "False", "KubeletHasSufficientPID"}, {"Ready", "True", "KubeletReady"},
	} {
		conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q,"message":"kubelet says %s",`+
			`"lastHeartbeatTime":%q,"lastTransitionTime":"2026-01-01T00:00:00Z"}`, of[0], of[1], of[2], of[2], stamp(at)))
	}
	return `"$setElementOrder/conditions":[{"type":"MemoryPressure"},{"type":"DiskPressure"},{"type":"PIDPressure"},` +
		`{"type":"Ready"}],"conditions":[` + strings.Join(conditions, ",") + `]`
}

func nodeStatus(at time.Time) []byte {
	var images []string
	for i := range 10 {
		images = append(images, fmt.Sprintf(`{"names":["registry.example/team/image-%d@sha256:%064d","registry.example/team/image-%d:v1"],`+
			`"sizeBytes":%d}`, i, i, i, 100_000_000+i))
	}
	const resources = `{"cpu":"4","memory":"16Gi","pods":"110","ephemeral-storage":"100Gi","hugepages-2Mi":"0"}`
	return fmt.Appendf(nil, `{"status":{%s,"capacity":%s,"allocatable":%s,"images":[%s],`+
		`"nodeInfo":{"machineID":"%032d","systemUUID":"0","bootID":"0","kernelVersion":"6.1.0","osImage":"Linux",`+
		`"containerRuntimeVersion":"containerd://2.0","kubeletVersion":"v1.36.0","kubeProxyVersion":"","operatingSystem":"linux",`+
		`"architecture":"amd64"}}}`, conditionsAt(at), resources, resources, strings.Join(images, ","), 1)
}

func leaseBody(n *node, at time.Time) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,`+
		`"namespace":"kube-node-lease","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%q,"uid":%q}]},`+
		`"spec":{"holderIdentity":%q,"leaseDurationSeconds":40,"renewTime":%q}}`,
		n.name, n.name, n.uid, n.name, at.UTC().Format("2006-01-02T15:04:05.000000Z"))
}

func podBody(namespace, name, node string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"labels":{"app":"web",`+
		`"pod-template-hash":"5d4f8c7b9d","app.kubernetes.io/part-of":"bench"}},"spec":{"nodeName":%q,"containers":[{"name":"web",`+
		`"image":"registry.example/team/web:v1","ports":[{"containerPort":8080}],"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":`+
		`{"fieldPath":"metadata.name"}}},{"name":"MODE","value":"production"}],"resources":{"requests":{"cpu":"100m",`+
		`"memory":"128Mi"},"limits":{"memory":"256Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":8080}},`+
		`"livenessProbe":{"httpGet":{"path":"/live","port":8080}},"volumeMounts":[{"name":"scratch","mountPath":"/scratch"}]}],`+
		`"volumes":[{"name":"scratch","emptyDir":{}}],"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists",`+
		`"effect":"NoExecute","tolerationSeconds":300}]}}`, name, namespace, node)
}

func bindingBody(namespace, pod, node string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q,"namespace":%q},`+
		`"target":{"apiVersion":"v1","kind":"Node","name":%q}}`, pod, namespace, node)
}

func podStatus(n *node, pod object, phase string, at time.Time) []byte {
	ready, state := "False", `{"waiting":{"reason":"ContainerCreating"}}`
	switch phase {
	case "Running":
		ready, state = "True", fmt.Sprintf(`{"running":{"startedAt":%q}}`, stamp(at))
	case "Succeeded":
		state = fmt.Sprintf(`{"terminated":{"exitCode":0,"reason":"Completed","startedAt":%q,"finishedAt":%q}}`, stamp(at), stamp(at))
	}
	var conditions, order []string
	for _, kind := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		status := "True"
		if strings.HasSuffix(kind, "Ready") {
			status = ready
		}
		conditions = append(conditions, fmt.Sprintf(`{"type":%q,"status":%q,"lastProbeTime":null,"lastTransitionTime":%q}`, kind, status, stamp(at)))
		order = append(order, fmt.Sprintf(`{"type":%q}`, kind))
	}
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"$setElementOrder/conditions":[%s],"conditions":[%s],"phase":%q,`+
		`"startTime":%q,"hostIP":"192.0.2.1","podIP":"10.0.0.7","podIPs":[{"ip":"10.0.0.7"}],"containerStatuses":[{"name":"web",`+
		`"image":"registry.example/team/web:v1","imageID":"sha256:%064d","containerID":"containerd://%064d","ready":%t,"started":%t,`+
		`"restartCount":0,"lastState":{},"state":%s}]}}`, pod.uid, strings.Join(order, ","), strings.Join(conditions, ","), phase,
		stamp(at), 1, 2, ready == "True", ready == "True", state)
}

func eventBody(namespace, pod, reason string, at time.Time) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Event","metadata":{"name":"%s.%x","namespace":%q},"involvedObject":`+
		`{"apiVersion":"v1","kind":"Pod","name":%q,"namespace":%q},"reason":%q,"message":"%s: container web","type":"Normal",`+
		`"firstTimestamp":%q,"lastTimestamp":%q,"count":1,"source":{"component":"kubelet"}}`,
		pod, at.UnixNano(), namespace, pod, namespace, reason, reason, stamp(at), stamp(at))
}
