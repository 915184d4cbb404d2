package chronicle

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// hooks are webhooks in front of the functions with which a test replaces parts of the process.
type hooks struct{ servers []*httptest.Server }

// serve starts one, and returns the kubeconfig that leads to it.
func (h *hooks) serve(folder, name string, handler http.Handler) string {
	server := httptest.NewTLSServer(handler)
	h.servers = append(h.servers, server)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(folder, name+".kubeconfig")
	text, err := clientcmd.Write(*config)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		panic(err)
	}
	return path
}

func (h *hooks) close() {
	for _, server := range h.servers {
		server.Close()
	}
	h.servers = nil
}

// review returns a handler that decodes a review, has it decided, and returns it.
func review[T any](decide func(context.Context, *T)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := new(T)
		if err := json.NewDecoder(r.Body).Decode(asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		decide(r.Context(), asked)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(asked)
	})
}

func reviewToken(asked authenticator.Request) http.Handler {
	return review(func(ctx context.Context, r *authenticationv1.TokenReview) {
		if len(r.Spec.Audiences) > 0 {
			ctx = authenticator.WithAudiences(ctx, r.Spec.Audiences)
		}
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1/", nil)
		request.Header.Set("Authorization", "Bearer "+r.Spec.Token)
		found, ok, err := asked.AuthenticateRequest(request)
		r.TypeMeta = metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"}
		r.Status = authenticationv1.TokenReviewStatus{}
		if err != nil {
			r.Status.Error = err.Error()
		} else if ok {
			who := found.User
			r.Status.Authenticated, r.Status.Audiences = true, found.Audiences
			r.Status.User = authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
			r.Status.User.Extra = map[string]authenticationv1.ExtraValue{}
			for key, values := range who.GetExtra() {
				r.Status.User.Extra[key] = values
			}
		}
	})
}

func reviewAccess(asked authorizer.Authorizer) http.Handler {
	return review(func(ctx context.Context, r *authorizationv1.SubjectAccessReview) {
		who := &user.DefaultInfo{Name: r.Spec.User, UID: r.Spec.UID, Groups: r.Spec.Groups}
		for key, values := range r.Spec.Extra {
			if who.Extra == nil {
				who.Extra = map[string][]string{}
			}
			who.Extra[key] = values
		}
		wanted := &authorizer.AttributesRecord{User: who}
		if on := r.Spec.ResourceAttributes; on != nil {
			wanted.ResourceRequest, wanted.Verb, wanted.Namespace, wanted.Name = true, on.Verb, on.Namespace, on.Name
			wanted.APIGroup, wanted.APIVersion = on.Group, on.Version
			wanted.Resource, wanted.Subresource = on.Resource, on.Subresource
		} else if on := r.Spec.NonResourceAttributes; on != nil {
			wanted.Verb, wanted.Path = on.Verb, on.Path
		}
		decision, why, err := asked.Authorize(ctx, wanted)
		r.TypeMeta = metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"}
		r.Status = authorizationv1.SubjectAccessReviewStatus{
			Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: why,
		}
		if err != nil {
			r.Status.EvaluationError = err.Error()
		}
	})
}

// Placeholder stands for what the flags would make, in a configuration that a test may change.
type Placeholder struct{ asked bool }

// AuthenticateRequest knows nobody.
func (p *Placeholder) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return nil, false, nil
}

// Authorize has no opinion.
func (p *Placeholder) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	p.asked = true
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize has no opinion.
func (p *Placeholder) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(p.Authorize(ctx, a))
}

// EvaluateConditions knows no conditions.
func (p *Placeholder) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// IsAskedBy tells whether an authorizer passes on what it does not know.
func (p *Placeholder) IsAskedBy(other authorizer.Authorizer) (asked bool) {
	p.asked = false
	defer func() {
		recover()
		asked = p.asked
	}()
	stranger := &user.DefaultInfo{Name: "harness:stranger"}
	other.Authorize(context.Background(), &authorizer.AttributesRecord{
		User: stranger, Verb: "probe", ResourceRequest: true, Resource: "probes",
	})
	return
}
